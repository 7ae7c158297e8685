/* cuBLAS and cuBLASLt. Matrix products are accepted and compute nothing; descriptors keep what is put into them. */
#include "simulator.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

typedef int status;

enum { SUCCESS = 0, ALLOC_FAILED = 3 };

/* ---- handles ---- */

struct handle {
    void *stream;
    int pointer_mode;
    int math_mode;
    int atomics_mode;
};

status cublasCreate_v2(struct handle **handle)
{
    *handle = new_object(sizeof **handle);
    return *handle ? SUCCESS : ALLOC_FAILED;
}

status cublasDestroy_v2(struct handle *handle)
{
    free(handle);
    return SUCCESS;
}

status cublasGetVersion_v2(UNUSED struct handle *handle, int *version)
{
    *version = CUBLAS_VERSION_NUMBER;
    return SUCCESS;
}

status cublasGetProperty(int property, int *value)
{
    static const int version[] = {12, 5, 3};
    *value = property >= 0 && property < 3 ? version[property] : 0;
    return SUCCESS;
}

size_t cublasGetCudartVersion(void)
{
    return CUDA_VERSION_NUMBER;
}

#define SETTING(get, set, type, field)                                                                                 \
    status set(struct handle *handle, type value)                                                                      \
    {                                                                                                                  \
        handle->field = value;                                                                                         \
        return SUCCESS;                                                                                                \
    }                                                                                                                  \
    status get(const struct handle *handle, type *value)                                                               \
    {                                                                                                                  \
        *value = handle->field;                                                                                        \
        return SUCCESS;                                                                                                \
    }

SETTING(cublasGetStream_v2, cublasSetStream_v2, void *, stream)
SETTING(cublasGetPointerMode_v2, cublasSetPointerMode_v2, int, pointer_mode)
SETTING(cublasGetMathMode, cublasSetMathMode, int, math_mode)
SETTING(cublasGetAtomicsMode, cublasSetAtomicsMode, int, atomics_mode)

status cublasSetWorkspace_v2(UNUSED struct handle *handle, UNUSED void *workspace, UNUSED size_t bytes)
{
    return SUCCESS;
}

const char *cublasGetStatusName(status error)
{
    return error == SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_ERROR";
}

const char *cublasGetStatusString(status error)
{
    return error == SUCCESS ? "success" : "error of the simulated card";
}

/* ---- computations, by name: all do nothing ---- */

#define NOTHING(name)                                                                                                  \
    status name(void)                                                                                                  \
    {                                                                                                                  \
        return SUCCESS;                                                                                                \
    }
#define FOR_FLOATS(before, after) NOTHING(before##S##after) NOTHING(before##D##after)
#define FOR_COMPLEX(before, after) NOTHING(before##C##after) NOTHING(before##Z##after)
#define FOR_ALL(before, after) FOR_FLOATS(before, after) FOR_COMPLEX(before, after)

FOR_ALL(cublas, axpy_v2)
FOR_ALL(cublas, copy_v2)
FOR_ALL(cublas, scal_v2)
FOR_ALL(cublas, gemv_v2)
FOR_ALL(cublas, gemm_v2)
FOR_ALL(cublas, gemmBatched)
FOR_ALL(cublas, gemmStridedBatched)
FOR_ALL(cublas, trsm_v2)
FOR_ALL(cublas, trsmBatched)
FOR_ALL(cublas, geam)
FOR_ALL(cublas, getrfBatched)
FOR_ALL(cublas, getriBatched)
FOR_ALL(cublas, getrsBatched)
FOR_ALL(cublas, matinvBatched)
FOR_FLOATS(cublas, dot_v2)
NOTHING(cublasCsscal_v2)
NOTHING(cublasZdscal_v2)
NOTHING(cublasHgemm)
NOTHING(cublasSgemmEx)
NOTHING(cublasGemmEx)
NOTHING(cublasGemmBatchedEx)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasLtMatmul)
NOTHING(cublasLtMatrixTransform)

/* ---- cuBLASLt: descriptors are lists of attributes ---- */

struct attribute {
    int name;
    size_t bytes;
    unsigned char value[64];
};

struct descriptor {
    size_t count;
    struct attribute attributes[48];
};

static struct attribute *find(struct descriptor *descriptor, int name)
{
    for (size_t i = 0; i < descriptor->count; i++)
        if (descriptor->attributes[i].name == name)
            return &descriptor->attributes[i];
    return NULL;
}

static void put(struct descriptor *descriptor, int name, const void *value, size_t bytes)
{
    struct attribute *attribute = find(descriptor, name);
    if (!attribute && descriptor->count < sizeof descriptor->attributes / sizeof *descriptor->attributes)
        attribute = &descriptor->attributes[descriptor->count++];
    if (!attribute || bytes > sizeof attribute->value)
        return;
    attribute->name = name;
    attribute->bytes = bytes;
    memcpy(attribute->value, value, bytes);
}

static status get(struct descriptor *descriptor, int name, void *value, size_t bytes, size_t *written)
{
    const struct attribute *attribute = find(descriptor, name);
    size_t known = attribute ? attribute->bytes : bytes;
    if (written)
        *written = known;
    if (value && bytes) {
        memset(value, 0, bytes);
        if (attribute)
            memcpy(value, attribute->value, known < bytes ? known : bytes);
    }
    return SUCCESS;
}

#define DESCRIPTOR(kind)                                                                                               \
    status cublasLt##kind##Destroy(struct descriptor *descriptor)                                                      \
    {                                                                                                                  \
        free(descriptor);                                                                                              \
        return SUCCESS;                                                                                                \
    }                                                                                                                  \
    status cublasLt##kind##SetAttribute(struct descriptor *descriptor, int name, const void *value, size_t bytes)      \
    {                                                                                                                  \
        put(descriptor, name, value, bytes);                                                                           \
        return SUCCESS;                                                                                                \
    }                                                                                                                  \
    status cublasLt##kind##GetAttribute(struct descriptor *descriptor, int name, void *value, size_t bytes,            \
                                        size_t *written)                                                               \
    {                                                                                                                  \
        return get(descriptor, name, value, bytes, written);                                                           \
    }

DESCRIPTOR(MatmulDesc)
DESCRIPTOR(MatrixLayout)
DESCRIPTOR(MatmulPreference)

status cublasLtMatmulDescCreate(struct descriptor **descriptor, int compute_type, int scale_type)
{
    *descriptor = new_object(sizeof **descriptor);
    put(*descriptor, 0, &compute_type, sizeof compute_type);
    put(*descriptor, 1, &scale_type, sizeof scale_type);
    return SUCCESS;
}

status cublasLtMatrixLayoutCreate(struct descriptor **descriptor, int type, uint64_t rows, uint64_t columns,
                                  int64_t leading_dimension)
{
    int32_t batch_count = 1;
    *descriptor = new_object(sizeof **descriptor);
    put(*descriptor, 0, &type, sizeof type);
    put(*descriptor, 2, &rows, sizeof rows);
    put(*descriptor, 3, &columns, sizeof columns);
    put(*descriptor, 4, &leading_dimension, sizeof leading_dimension);
    put(*descriptor, 5, &batch_count, sizeof batch_count);
    return SUCCESS;
}

status cublasLtMatmulPreferenceCreate(struct descriptor **descriptor)
{
    *descriptor = new_object(sizeof **descriptor);
    return SUCCESS;
}

status cublasLtCreate(void **handle)
{
    *handle = new_object(1);
    return SUCCESS;
}

status cublasLtDestroy(void *handle)
{
    free(handle);
    return SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION_NUMBER;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDA_VERSION_NUMBER;
}

const char *cublasLtGetStatusName(status error)
{
    return cublasGetStatusName(error);
}

const char *cublasLtGetStatusString(status error)
{
    return cublasGetStatusString(error);
}

struct heuristic_result {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    status state;
    float waves;
    int reserved[4];
};

/* One algorithm, without a workspace. */
status cublasLtMatmulAlgoGetHeuristic(UNUSED void *handle, UNUSED void *operation, UNUSED void *a, UNUSED void *b,
                                      UNUSED void *c, UNUSED void *d, UNUSED void *preference, int wanted,
                                      struct heuristic_result *results, int *count)
{
    *count = wanted > 0;
    if (*count)
        results[0] = (struct heuristic_result){.algorithm = {1}, .waves = 1};
    return SUCCESS;
}

status cublasLtMatmulAlgoConfigGetAttribute(UNUSED const void *algorithm, UNUSED int name, void *value, size_t bytes,
                                            size_t *written)
{
    memset(value, 0, bytes);
    if (written)
        *written = bytes;
    return SUCCESS;
}
