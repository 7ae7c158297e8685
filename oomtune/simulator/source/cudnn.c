/*
 * cuDNN. Descriptors keep what is put into them and nothing is computed. Only sizes are real: of RNN weights, which
 * TensorFlow allocates and cuts up, of RNN workspaces, and of convolution workspaces, which are modelled.
 */
#include "simulator.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

typedef int status;

enum { SUCCESS = 0 };

/* ---- versions, handles ---- */

struct handle {
    void *stream;
};

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION_NUMBER;
}

size_t cudnnGetCudartVersion(void)
{
    return CUDA_VERSION_NUMBER;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    return 90;
}

status cudnnGetProperty(int property, int *value)
{
    static const int version[] = {9, 3, 0};
    *value = property >= 0 && property < 3 ? version[property] : 0;
    return SUCCESS;
}

#define NOTHING(name)                                                                                                  \
    status name(void)                                                                                                  \
    {                                                                                                                  \
        return SUCCESS;                                                                                                \
    }

NOTHING(cudnnGraphVersionCheck)
NOTHING(cudnnOpsVersionCheck)
NOTHING(cudnnCnnVersionCheck)
NOTHING(cudnnAdvVersionCheck)

const char *cudnnGetErrorString(status error)
{
    return error == SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_ERROR";
}

void cudnnGetLastErrorString(char *message, size_t bytes)
{
    if (bytes)
        message[0] = 0;
}

status cudnnCreate(struct handle **handle)
{
    *handle = new_object(sizeof **handle);
    return SUCCESS;
}

status cudnnDestroy(struct handle *handle)
{
    free(handle);
    return SUCCESS;
}

status cudnnSetStream(struct handle *handle, void *stream)
{
    handle->stream = stream;
    return SUCCESS;
}

status cudnnGetStream(const struct handle *handle, void **stream)
{
    *stream = handle->stream;
    return SUCCESS;
}

/* ---- the graph API: operations, engines and plans are descriptors with attributes ---- */

enum attribute_type { TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_DOUBLE = 5, TYPE_POINTER = 6, TYPE_DESCRIPTOR = 15,
                      TYPE_CHAR = 24, TYPE_FRACTION = 26, TYPE_HANDLE = 0 };

enum descriptor_type {
    ENGINE = 2,
    ENGINE_CONFIG = 3,
    ENGINE_HEURISTIC = 4,
    EXECUTION_PLAN = 5,
    CONVOLUTION_FORWARD = 10,
    CONVOLUTION_BACKWARD_FILTER = 11,
    CONVOLUTION_BACKWARD_DATA = 12,
    OPERATION_GRAPH = 15,
};

enum attribute_name {
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    CONFIG_ENGINE = 300,
    CONFIG_KNOBS = 302,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    PLAN_JSON = 405,
    GRAPH_OPERATIONS = 801,
    GRAPH_ENGINE_COUNT = 802,
    TENSOR_TYPE = 901,
    TENSOR_DIMENSIONS = 902,
    ENGINE_GRAPH = 1300,
    ENGINE_INDEX = 1301,
    ENGINE_KNOBS = 1302,
    ENGINE_NUMERICAL_NOTES = 1303,
    ENGINE_BEHAVIOUR_NOTES = 1305,
};

struct attribute {
    int name;
    int type;
    int64_t count;
    void *values;
};

struct descriptor {
    int type;
    int count;
    struct attribute attributes[48];
};

static size_t size_of(int type)
{
    switch (type) {
    case TYPE_BOOLEAN: case TYPE_CHAR:
        return 1;
    case TYPE_INT64: case TYPE_DOUBLE: case TYPE_POINTER: case TYPE_DESCRIPTOR: case TYPE_HANDLE:
        return 8;
    case TYPE_FRACTION:
        return 16;
    default:
        return 4;
    }
}

static struct attribute *find(const struct descriptor *descriptor, int name)
{
    for (int i = 0; descriptor && i < descriptor->count; i++)
        if (descriptor->attributes[i].name == name)
            return (struct attribute *)&descriptor->attributes[i];
    return NULL;
}

static void put(struct descriptor *descriptor, int name, int type, int64_t count, const void *values)
{
    struct attribute *attribute = find(descriptor, name);
    if (!attribute) {
        if (descriptor->count == (int)(sizeof descriptor->attributes / sizeof *descriptor->attributes))
            return;
        attribute = &descriptor->attributes[descriptor->count++];
        attribute->values = NULL;
    }
    free(attribute->values);
    *attribute = (struct attribute){name, type, count, malloc((size_t)count * size_of(type) + 1)};
    if (values)
        memcpy(attribute->values, values, (size_t)count * size_of(type));
}

static struct descriptor *new_descriptor(int type)
{
    struct descriptor *descriptor = new_object(sizeof *descriptor);
    descriptor->type = type;
    return descriptor;
}

static struct descriptor *part(const struct descriptor *descriptor, int name, int64_t index)
{
    const struct attribute *attribute = find(descriptor, name);
    return attribute && index < attribute->count ? ((struct descriptor **)attribute->values)[index] : NULL;
}

static int64_t number(const struct descriptor *descriptor, int name, int64_t index, int64_t otherwise)
{
    const struct attribute *attribute = find(descriptor, name);
    if (!attribute || index >= attribute->count)
        return otherwise;
    return attribute->type == TYPE_INT64 ? ((int64_t *)attribute->values)[index] : ((int32_t *)attribute->values)[index];
}

static void copy_descriptor(struct descriptor *to, const struct descriptor *from)
{
    for (int i = 0; i < to->count; i++)
        free(to->attributes[i].values);
    to->count = 0;
    to->type = from->type;
    for (int i = 0; i < from->count; i++) {
        const struct attribute *attribute = &from->attributes[i];
        put(to, attribute->name, attribute->type, attribute->count, attribute->values);
    }
}

status cudnnBackendCreateDescriptor(int type, struct descriptor **descriptor)
{
    *descriptor = new_descriptor(type);
    return SUCCESS;
}

/* Descriptors refer to each other without counting, so they live as long as the process. */
status cudnnBackendDestroyDescriptor(UNUSED struct descriptor *descriptor)
{
    return SUCCESS;
}

status cudnnBackendSetAttribute(struct descriptor *descriptor, int name, int type, int64_t count, const void *values)
{
    put(descriptor, name, type, count, values);
    return SUCCESS;
}

status cudnnBackendFinalize(UNUSED struct descriptor *descriptor)
{
    return SUCCESS;
}

/* The operation graph that a plan, a configuration, an engine or a heuristic is for. */
static struct descriptor *graph_of(struct descriptor *descriptor)
{
    switch (descriptor ? descriptor->type : 0) {
    case OPERATION_GRAPH:
        return descriptor;
    case ENGINE:
        return part(descriptor, ENGINE_GRAPH, 0);
    case ENGINE_CONFIG:
        return graph_of(part(descriptor, CONFIG_ENGINE, 0));
    case EXECUTION_PLAN:
        return graph_of(part(descriptor, PLAN_CONFIG, 0));
    case ENGINE_HEURISTIC:
        return part(descriptor, HEURISTIC_GRAPH, 0);
    default:
        return NULL;
    }
}

static int64_t engine_of(const struct descriptor *plan)
{
    return number(part(part(plan, PLAN_CONFIG, 0), CONFIG_ENGINE, 0), ENGINE_INDEX, 0, 0);
}

static size_t element_bytes(int64_t data_type)
{
    switch (data_type) {
    case 1: case 10: /* double, int64 */
        return 8;
    case 2: case 9: /* half, bfloat16 */
        return 2;
    case 3: case 6: case 11: case 12: case 13: /* int8, uint8, bool, both kinds of float8 */
        return 1;
    default:
        return 4;
    }
}

static double tensor_bytes(const struct descriptor *tensor)
{
    const struct attribute *dimensions = find(tensor, TENSOR_DIMENSIONS);
    double elements = 1;
    for (int64_t i = 0; dimensions && i < dimensions->count; i++)
        elements *= (double)((int64_t *)dimensions->values)[i];
    return elements * (double)element_bytes(number(tensor, TENSOR_TYPE, 0, 0));
}

/*
 * The workspace of a convolution is known to real cards only. The model takes a share of the bytes of its input and
 * output; the share is the card's `workspace_permille`.
 */
static int64_t convolution_workspace(const struct descriptor *graph)
{
    const struct attribute *operations = find(graph, GRAPH_OPERATIONS);
    double share = (double)cards[active_card()].about.workspace_permille / 1000;
    double largest = 0;
    for (int64_t i = 0; operations && i < operations->count; i++) {
        const struct descriptor *operation = ((struct descriptor **)operations->values)[i];
        int input, output;
        switch (operation->type) {
        case CONVOLUTION_FORWARD: input = 704, output = 705; break;
        case CONVOLUTION_BACKWARD_DATA: input = 710, output = 711; break;
        case CONVOLUTION_BACKWARD_FILTER: input = 716, output = 717; break;
        default: continue;
        }
        double bytes = share * (tensor_bytes(part(operation, input, 0)) + tensor_bytes(part(operation, output, 0)));
        largest = bytes > largest ? bytes : largest;
    }
    return ((int64_t)largest + 255) / 256 * 256;
}

/* Two engines: the first is faster and needs the workspace; the second is what TensorFlow falls back to without it. */
static void fill_engine_configs(struct descriptor *heuristic, int64_t count, struct descriptor **configs)
{
    struct descriptor *graph = graph_of(heuristic);
    for (int64_t i = 0; i < count; i++) {
        struct descriptor *engine = new_descriptor(ENGINE);
        put(engine, ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);
        put(engine, ENGINE_INDEX, TYPE_INT64, 1, &i);
        if (configs[i]) {
            configs[i]->type = ENGINE_CONFIG;
            put(configs[i], CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
        }
    }
}

static status get_stored(const struct descriptor *descriptor, int name, int type, int64_t wanted, int64_t *count,
                         void *values)
{
    const struct attribute *attribute = find(descriptor, name);
    *count = attribute ? attribute->count : 0;
    if (!attribute || !values)
        return SUCCESS;
    int64_t given = wanted < attribute->count ? wanted : attribute->count;
    for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < given; i++) {
        struct descriptor **slot = (struct descriptor **)values + i;
        struct descriptor *stored = ((struct descriptor **)attribute->values)[i];
        if (*slot) /* the caller's own descriptor is to be filled */
            copy_descriptor(*slot, stored);
        else
            *slot = stored;
    }
    if (type != TYPE_DESCRIPTOR && given > 0)
        memcpy(values, attribute->values, (size_t)given * size_of(attribute->type));
    return SUCCESS;
}

status cudnnBackendGetAttribute(struct descriptor *descriptor, int name, int type, int64_t wanted, int64_t *count,
                                void *values)
{
    static const char JSON[] = "{\"simulated\":true}";
    int64_t ignored;
    count = count ? count : &ignored;
    switch (name) {
    case HEURISTIC_RESULTS:
        *count = 2;
        if (values && wanted > 0) {
            *count = wanted < 2 ? wanted : 2;
            fill_engine_configs(descriptor, *count, values);
        }
        return SUCCESS;
    case PLAN_WORKSPACE:
        *count = 1;
        if (values)
            *(int64_t *)values = engine_of(descriptor) == 0 ? convolution_workspace(graph_of(descriptor)) : 0;
        return SUCCESS;
    case GRAPH_ENGINE_COUNT:
        *count = 1;
        if (values)
            *(int64_t *)values = 2;
        return SUCCESS;
    case ENGINE_NUMERICAL_NOTES: case ENGINE_BEHAVIOUR_NOTES: case ENGINE_KNOBS: case CONFIG_KNOBS:
        *count = 0;
        return SUCCESS;
    case PLAN_JSON:
        *count = sizeof JSON;
        if (values && wanted >= (int64_t)sizeof JSON)
            memcpy(values, JSON, sizeof JSON);
        return SUCCESS;
    default:
        return get_stored(descriptor, name, type, wanted, count, values);
    }
}

status cudnnBackendExecute(UNUSED struct handle *handle, struct descriptor *plan, UNUSED struct descriptor *variants)
{
    elapsed_ms = engine_of(plan) == 0 ? 0.05f : 0.10f;
    return SUCCESS;
}

/* ---- tensors and other small descriptors of the older API ---- */

enum { MAX_DIMENSIONS = 8 };

struct tensor {
    int data_type;
    int count;
    int dimensions[MAX_DIMENSIONS];
    int strides[MAX_DIMENSIONS];
};

status cudnnCreateTensorDescriptor(struct tensor **tensor)
{
    *tensor = new_object(sizeof **tensor);
    return SUCCESS;
}

status cudnnDestroyTensorDescriptor(struct tensor *tensor)
{
    free(tensor);
    return SUCCESS;
}

status cudnnSetTensorNdDescriptor(struct tensor *tensor, int data_type, int count, const int *dimensions,
                                  const int *strides)
{
    *tensor = (struct tensor){.data_type = data_type, .count = count < MAX_DIMENSIONS ? count : MAX_DIMENSIONS};
    memcpy(tensor->dimensions, dimensions, (size_t)tensor->count * sizeof(int));
    memcpy(tensor->strides, strides, (size_t)tensor->count * sizeof(int));
    return SUCCESS;
}

status cudnnGetTensorNdDescriptor(const struct tensor *tensor, int wanted, int *data_type, int *count, int *dimensions,
                                  int *strides)
{
    size_t given = (size_t)(wanted < tensor->count ? wanted : tensor->count);
    *data_type = tensor->data_type;
    *count = tensor->count;
    memcpy(dimensions, tensor->dimensions, given * sizeof(int));
    memcpy(strides, tensor->strides, given * sizeof(int));
    return SUCCESS;
}

status cudnnGetTensorSizeInBytes(const struct tensor *tensor, size_t *bytes)
{
    *bytes = element_bytes(tensor->data_type);
    for (int i = 0; i < tensor->count; i++)
        *bytes *= (size_t)tensor->dimensions[i];
    return SUCCESS;
}

#define PLAIN_DESCRIPTOR(kind)                                                                                         \
    status cudnnCreate##kind##Descriptor(void **descriptor)                                                            \
    {                                                                                                                  \
        *descriptor = new_object(256);                                                                                 \
        return SUCCESS;                                                                                                \
    }                                                                                                                  \
    status cudnnDestroy##kind##Descriptor(void *descriptor)                                                            \
    {                                                                                                                  \
        free(descriptor);                                                                                              \
        return SUCCESS;                                                                                                \
    }

PLAIN_DESCRIPTOR(Filter)
PLAIN_DESCRIPTOR(Pooling)
PLAIN_DESCRIPTOR(Convolution)
PLAIN_DESCRIPTOR(Activation)
PLAIN_DESCRIPTOR(LRN)
PLAIN_DESCRIPTOR(OpTensor)
PLAIN_DESCRIPTOR(Dropout)
PLAIN_DESCRIPTOR(CTCLoss)

NOTHING(cudnnSetFilterNdDescriptor)
NOTHING(cudnnSetPoolingNdDescriptor)
NOTHING(cudnnSetConvolutionNdDescriptor)
NOTHING(cudnnSetConvolutionMathType)
NOTHING(cudnnSetConvolutionGroupCount)
NOTHING(cudnnSetActivationDescriptor)
NOTHING(cudnnSetLRNDescriptor)
NOTHING(cudnnPoolingForward)
NOTHING(cudnnPoolingBackward)
NOTHING(cudnnActivationForward)
NOTHING(cudnnActivationBackward)
NOTHING(cudnnSoftmaxForward)
NOTHING(cudnnLRNCrossChannelForward)
NOTHING(cudnnLRNCrossChannelBackward)
NOTHING(cudnnAddTensor)
NOTHING(cudnnScaleTensor)
NOTHING(cudnnTransformTensor)
NOTHING(cudnnBatchNormalizationForwardTrainingEx)
NOTHING(cudnnBatchNormalizationForwardInference)
NOTHING(cudnnBatchNormalizationBackwardEx)
NOTHING(cudnnSetDropoutDescriptor)
NOTHING(cudnnRestoreDropoutDescriptor)

#define NO_BYTES(name, ...)                                                                                            \
    status name(__VA_ARGS__, size_t *bytes)                                                                            \
    {                                                                                                                  \
        *bytes = 0;                                                                                                    \
        return SUCCESS;                                                                                                \
    }

NO_BYTES(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, UNUSED void *handle, UNUSED int mode,
         UNUSED int operations, UNUSED void *x, UNUSED void *z, UNUSED void *y, UNUSED void *scale,
         UNUSED void *activation)
NO_BYTES(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, UNUSED void *handle, UNUSED int mode,
         UNUSED int operations, UNUSED void *activation, UNUSED void *x)
NO_BYTES(cudnnGetBatchNormalizationBackwardExWorkspaceSize, UNUSED void *handle, UNUSED int mode,
         UNUSED int operations, UNUSED void *x, UNUSED void *y, UNUSED void *dy, UNUSED void *dz, UNUSED void *dx,
         UNUSED void *scale, UNUSED void *activation)

/* The states of the random generators: one for each thread that a card can run. */
status cudnnDropoutGetStatesSize(UNUSED struct handle *handle, size_t *bytes)
{
    int card = active_card();
    *bytes = (size_t)device_attribute(16, card) * (size_t)device_attribute(39, card) * 16;
    return SUCCESS;
}

/* ---- RNNs ---- */

enum { MODE_LSTM = 2, MODE_GRU = 3 };

struct rnn {
    int algorithm, mode, bias_mode, direction_mode, input_mode, data_type, math_precision, math_type;
    int32_t input, hidden, projected, layers;
    void *dropout;
    uint32_t flags;
    int directions;
};

struct rnn_data {
    int data_type;
    int steps;
    int batch;
};

status cudnnCreateRNNDescriptor(struct rnn **rnn)
{
    *rnn = new_object(sizeof **rnn);
    return SUCCESS;
}

status cudnnDestroyRNNDescriptor(struct rnn *rnn)
{
    free(rnn);
    return SUCCESS;
}

status cudnnSetRNNDescriptor_v8(struct rnn *rnn, int algorithm, int mode, int bias_mode, int direction_mode,
                                int input_mode, int data_type, int math_precision, int math_type, int32_t input,
                                int32_t hidden, int32_t projected, int32_t layers, void *dropout, uint32_t flags)
{
    *rnn = (struct rnn){
        .algorithm = algorithm, .mode = mode, .bias_mode = bias_mode, .direction_mode = direction_mode,
        .input_mode = input_mode, .data_type = data_type, .math_precision = math_precision, .math_type = math_type,
        .input = input, .hidden = hidden, .projected = projected && projected < hidden ? projected : hidden,
        .layers = layers, .dropout = dropout, .flags = flags, .directions = direction_mode == 1 ? 2 : 1,
    };
    return SUCCESS;
}

#define GIVE(to, value)                                                                                                \
    if (to)                                                                                                            \
        *to = value;

status cudnnGetRNNDescriptor_v8(const struct rnn *rnn, int *algorithm, int *mode, int *bias_mode, int *direction_mode,
                                int *input_mode, int *data_type, int *math_precision, int *math_type, int32_t *input,
                                int32_t *hidden, int32_t *projected, int32_t *layers, void **dropout, uint32_t *flags)
{
    /* TensorFlow asks for some of these only. */
    GIVE(algorithm, rnn->algorithm)
    GIVE(mode, rnn->mode)
    GIVE(bias_mode, rnn->bias_mode)
    GIVE(direction_mode, rnn->direction_mode)
    GIVE(input_mode, rnn->input_mode)
    GIVE(data_type, rnn->data_type)
    GIVE(math_precision, rnn->math_precision)
    GIVE(math_type, rnn->math_type)
    GIVE(input, rnn->input)
    GIVE(hidden, rnn->hidden)
    GIVE(projected, rnn->projected)
    GIVE(layers, rnn->layers)
    GIVE(dropout, rnn->dropout)
    GIVE(flags, rnn->flags)
    return SUCCESS;
}

status cudnnCreateRNNDataDescriptor(struct rnn_data **data)
{
    *data = new_object(sizeof **data);
    return SUCCESS;
}

status cudnnDestroyRNNDataDescriptor(struct rnn_data *data)
{
    free(data);
    return SUCCESS;
}

status cudnnSetRNNDataDescriptor(struct rnn_data *data, int data_type, UNUSED int layout, int steps, int batch,
                                 UNUSED int vector, UNUSED const int *lengths, UNUSED void *padding)
{
    *data = (struct rnn_data){.data_type = data_type, .steps = steps, .batch = batch};
    return SUCCESS;
}

static size_t gates_of(const struct rnn *rnn)
{
    return rnn->mode == MODE_LSTM ? 4 : rnn->mode == MODE_GRU ? 3 : 1;
}

static size_t biases_of(const struct rnn *rnn)
{
    return rnn->bias_mode == 0 ? 0 : rnn->bias_mode == 2 ? 2 : 1;
}

static size_t input_of(const struct rnn *rnn, int layer)
{
    if (layer > 0)
        return (size_t)(rnn->directions * rnn->projected);
    return rnn->input_mode == 1 ? 0 : (size_t)rnn->input;
}

/* The elements of all matrices of one direction of a layer. */
static size_t matrices_of(const struct rnn *rnn, int layer)
{
    size_t hidden = (size_t)rnn->hidden, projected = (size_t)rnn->projected;
    size_t projection = projected < hidden ? projected * hidden : 0;
    return gates_of(rnn) * hidden * (input_of(rnn, layer) + projected) + projection;
}

status cudnnGetRNNWeightSpaceSize(UNUSED struct handle *handle, const struct rnn *rnn, size_t *bytes)
{
    size_t elements = 0;
    for (int layer = 0; layer < rnn->layers; layer++)
        elements += (size_t)rnn->directions *
                    (matrices_of(rnn, layer) + biases_of(rnn) * gates_of(rnn) * (size_t)rnn->hidden);
    *bytes = elements * element_bytes(rnn->data_type);
    return SUCCESS;
}

static void describe_matrix(struct tensor *tensor, int data_type, size_t first, size_t rows, size_t columns)
{
    int dimensions[] = {(int)first, (int)rows, (int)columns};
    int strides[] = {(int)(rows * columns), (int)columns, 1};
    if (tensor)
        cudnnSetTensorNdDescriptor(tensor, data_type, 3, dimensions, strides);
}

/* The layout: the matrices of each layer and direction, input gates before recurrent gates; then all biases. */
status cudnnGetRNNWeightParams(UNUSED struct handle *handle, const struct rnn *rnn, int32_t pseudo_layer,
                               UNUSED size_t weight_bytes, const char *weights, int32_t gate, struct tensor *matrix,
                               void **matrix_address, struct tensor *bias, void **bias_address)
{
    size_t gates = gates_of(rnn), hidden = (size_t)rnn->hidden, projected = (size_t)rnn->projected;
    size_t input = input_of(rnn, pseudo_layer / rnn->directions), id = (size_t)gate;
    size_t before = 0, all = 0;
    for (int other = 0; other < rnn->layers * rnn->directions; other++) {
        size_t elements = matrices_of(rnn, other / rnn->directions);
        before += other < pseudo_layer ? elements : 0;
        all += elements;
    }
    size_t bytes = element_bytes(rnn->data_type);
    if (id < gates) {
        before += id * hidden * input;
        describe_matrix(matrix, rnn->data_type, input ? 1 : 0, hidden, input);
    } else if (id < 2 * gates) {
        before += gates * hidden * input + (id - gates) * hidden * projected;
        describe_matrix(matrix, rnn->data_type, 1, hidden, projected);
    } else {
        before += gates * hidden * (input + projected);
        describe_matrix(matrix, rnn->data_type, 1, projected, hidden);
    }
    if (matrix_address)
        *matrix_address = (void *)(weights + before * bytes);
    int has_bias = id < biases_of(rnn) * gates;
    size_t bias_offset = all + ((size_t)pseudo_layer * biases_of(rnn) * gates + id) * hidden;
    describe_matrix(bias, rnn->data_type, (size_t)has_bias, has_bias ? hidden : 0, (size_t)has_bias);
    if (bias_address)
        *bias_address = has_bias ? (void *)(weights + bias_offset * bytes) : NULL;
    return SUCCESS;
}

/*
 * Real cards know these sizes, and NVIDIA does not publish them. The model: training keeps all gates and the states of
 * each layer for the backward pass (the reserve); the workspace holds the gates and the gradient of one layer.
 */
status cudnnGetRNNTempSpaceSizes(UNUSED struct handle *handle, const struct rnn *rnn, int forward_mode,
                                 const struct rnn_data *data, size_t *workspace_bytes, size_t *reserve_bytes)
{
    size_t states = rnn->mode == MODE_LSTM ? 2 : 1;
    size_t layer = (size_t)data->steps * (size_t)data->batch * (size_t)rnn->hidden * (size_t)rnn->directions *
                   element_bytes(data->data_type);
    if (reserve_bytes)
        *reserve_bytes = forward_mode == 1 ? layer * (size_t)rnn->layers * (gates_of(rnn) + states) + 4 * KIB : 0;
    if (workspace_bytes)
        *workspace_bytes = layer * (gates_of(rnn) + 1) + MIB;
    return SUCCESS;
}

NOTHING(cudnnRNNForward)
NOTHING(cudnnRNNBackwardData_v8)
NOTHING(cudnnRNNBackwardWeights_v8)
NOTHING(cudnnBuildRNNDynamic)
