/* The CUDA runtime (libcudart.so.12), on top of the driver. */
#define _GNU_SOURCE
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

typedef int status;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, MISSING_CONFIGURATION = 52, NO_DEVICE = 100, INVALID_DEVICE = 101 };

/* The driver's functions that the runtime passes on; their status codes are the same numbers. */
status cuDeviceGetUuid(char *uuid, int device);
status cuMemGetInfo_v2(size_t *available, size_t *total);
status cuMemAlloc_v2(uintptr_t *address, size_t bytes);
status cuMemFree_v2(uintptr_t address);
status cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
status cuMemAllocAsync(uintptr_t *address, size_t bytes, void *stream);
status cuMemAllocFromPoolAsync(uintptr_t *address, size_t bytes, void *pool, void *stream);
status cuMemFreeAsync(uintptr_t address, void *stream);
status cuDeviceGetDefaultMemPool(void **pool, int device);
status cuMemPoolSetAttribute(void *pool, int attribute, void *value);
status cuMemPoolGetAttribute(void *pool, int attribute, void *value);
status cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
status cuStreamDestroy_v2(void *stream);
status cuEventCreate(void **event, unsigned flags);
status cuEventDestroy_v2(void *event);
status cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t bytes);
status cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *result);
status cuGetErrorString(status error, const char **text);

struct dimensions {
    unsigned x, y, z;
};

/* ---- kernels register themselves before main(), and are launched by their host address ---- */

void **__cudaRegisterFatBinary(UNUSED void *binary)
{
    static void *handle[1];
    return handle;
}

void __cudaRegisterFatBinaryEnd(UNUSED void **handle) {}
void __cudaUnregisterFatBinary(UNUSED void **handle) {}
void __cudaRegisterFunction(UNUSED void **handle, UNUSED const char *host, UNUSED char *device, UNUSED const char *name,
                            UNUSED int limit, UNUSED void *thread, UNUSED void *block, UNUSED void *block_size,
                            UNUSED void *grid_size, UNUSED int *warp)
{
}
void __cudaRegisterVar(UNUSED void **handle, UNUSED char *host, UNUSED char *device, UNUSED const char *name,
                       UNUSED int external, UNUSED size_t bytes, UNUSED int constant, UNUSED int global)
{
}
void __cudaRegisterManagedVar(UNUSED void **handle, UNUSED void **host, UNUSED char *device, UNUSED const char *name,
                              UNUSED int external, UNUSED size_t bytes, UNUSED int constant, UNUSED int global)
{
}

char __cudaInitModule(UNUSED void **handle)
{
    return 1;
}

struct launch {
    struct dimensions grid, block;
    size_t shared_bytes;
    void *stream;
};

static _Thread_local struct launch pending[8];
static _Thread_local int pending_count;

/* The compiler turns `kernel<<<grid, block>>>()` into a push, and the kernel's host stub pops it again. */
unsigned __cudaPushCallConfiguration(struct dimensions grid, struct dimensions block, size_t shared_bytes, void *stream)
{
    if (pending_count < 8)
        pending[pending_count++] = (struct launch){grid, block, shared_bytes, stream};
    return SUCCESS;
}

status __cudaPopCallConfiguration(struct dimensions *grid, struct dimensions *block, size_t *shared_bytes, void *stream)
{
    if (!pending_count)
        return MISSING_CONFIGURATION;
    const struct launch *last = &pending[--pending_count];
    *grid = last->grid;
    *block = last->block;
    *shared_bytes = last->shared_bytes;
    *(void **)stream = last->stream;
    return SUCCESS;
}

status __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)function;
    return SUCCESS;
}

status cudaLaunchKernel(UNUSED const void *function, UNUSED struct dimensions grid, UNUSED struct dimensions block,
                        UNUSED void **arguments, UNUSED size_t shared_bytes, UNUSED void *stream)
{
    return SUCCESS;
}

status __cudaLaunchKernel(const void *kernel, struct dimensions grid, struct dimensions block, void **arguments,
                          size_t shared_bytes, void *stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

status cudaLaunchKernelExC(UNUSED const void *config, UNUSED const void *function, UNUSED void **arguments)
{
    return SUCCESS;
}

status cudaLaunchCooperativeKernel(const void *function, struct dimensions grid, struct dimensions block,
                                   void **arguments, size_t shared_bytes, void *stream)
{
    return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, stream);
}

status cudaLaunchHostFunc(UNUSED void *stream, void (*function)(void *), void *data)
{
    function(data);
    return SUCCESS;
}

/* ---- devices ---- */

status cudaGetDeviceCount(int *count)
{
    *count = card_count;
    return card_count ? SUCCESS : NO_DEVICE;
}

status cudaGetDevice(int *device)
{
    *device = active_card();
    return SUCCESS;
}

status cudaSetDevice(int device)
{
    if (device < 0 || device >= card_count)
        return INVALID_DEVICE;
    current_card = device;
    return SUCCESS;
}

status cudaDeviceSynchronize(void)
{
    return SUCCESS;
}

status cudaDriverGetVersion(int *version)
{
    *version = CUDA_VERSION_NUMBER;
    return SUCCESS;
}

status cudaRuntimeGetVersion(int *version)
{
    *version = CUDA_VERSION_NUMBER;
    return SUCCESS;
}

status cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = device_attribute(attribute, device);
    return SUCCESS;
}

status cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return SUCCESS;
}

status cudaDeviceGetPCIBusId(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "0000:%02X:00.0", device + 1);
    return SUCCESS;
}

status cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

/* A struct of 1,032 bytes. The offsets are those of CUDA 12. */
status cudaGetDeviceProperties_v2(char *properties, int device)
{
    if (device < 0 || device >= card_count)
        return INVALID_DEVICE;
    const struct card_description *about = &cards[device].about;
    memset(properties, 0, 1032);
    snprintf(properties, 256, "%s", about->name);
    device_uuid(properties + 256, device);
    const struct {
        int offset;
        uint64_t value;
    } sizes[] = {
        {288, about->total_bytes},
        {296, (uint64_t)device_attribute(8, device)},   /* shared memory of a block */
        {312, (uint64_t)device_attribute(11, device)},  /* pitch */
        {352, (uint64_t)device_attribute(9, device)},   /* constant memory */
        {368, (uint64_t)device_attribute(14, device)},  /* texture alignment */
        {376, (uint64_t)device_attribute(51, device)},  /* texture pitch alignment */
        {640, (uint64_t)device_attribute(81, device)},  /* shared memory of a multiprocessor */
        {696, (uint64_t)device_attribute(97, device)},  /* the most that a block may ask for */
        {720, (uint64_t)device_attribute(111, device)}, /* what the system takes of it */
    };
    const struct {
        int offset;
        int attribute;
    } numbers[] = {
        {304, 12}, {308, 10}, {320, 1},  {324, 2},  {328, 3},  {332, 4},  {336, 5},  {340, 6},  {344, 7},
        {348, 13}, {360, 75}, {364, 76}, {384, 15}, {388, 16}, {400, 19}, {576, 31}, {584, 33}, {588, 34},
        {600, 40}, {604, 41}, {608, 36}, {612, 37}, {616, 38}, {624, 39}, {628, 78}, {632, 79}, {636, 80},
        {648, 82}, {652, 83}, {660, 85}, {668, 87}, {676, 89}, {680, 90}, {688, 95}, {712, 106}, {728, 99}, {744, 115},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        memcpy(properties + sizes[i].offset, &sizes[i].value, 8);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int32_t value = device_attribute(numbers[i].attribute, device);
        memcpy(properties + numbers[i].offset, &value, 4);
    }
    return SUCCESS;
}

status cudaDeviceGetDefaultMemPool(void **pool, int device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

status cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    return cuMemPoolSetAttribute(pool, attribute, value);
}

status cudaMemPoolGetAttribute(void *pool, int attribute, void *value)
{
    return cuMemPoolGetAttribute(pool, attribute, value);
}

/* ---- memory ---- */

status cudaMemGetInfo(size_t *available, size_t *total)
{
    return cuMemGetInfo_v2(available, total);
}

status cudaMalloc(void **address, size_t bytes)
{
    *address = NULL;
    return bytes ? cuMemAlloc_v2((uintptr_t *)address, bytes) : SUCCESS;
}

status cudaMallocManaged(void **address, size_t bytes, UNUSED unsigned flags)
{
    return cudaMalloc(address, bytes);
}

status cudaFree(void *address)
{
    return cuMemFree_v2((uintptr_t)address);
}

status cudaMallocHost(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

status cudaHostAlloc(void **address, size_t bytes, unsigned flags)
{
    return cuMemHostAlloc(address, bytes, flags);
}

status cudaFreeHost(void *address)
{
    free(address);
    return SUCCESS;
}

status cudaMallocAsync(void **address, size_t bytes, void *stream)
{
    return cuMemAllocAsync((uintptr_t *)address, bytes, stream);
}

status cudaMallocFromPoolAsync(void **address, size_t bytes, void *pool, void *stream)
{
    return cuMemAllocFromPoolAsync((uintptr_t *)address, bytes, pool, stream);
}

status cudaFreeAsync(void *address, void *stream)
{
    return cuMemFreeAsync((uintptr_t)address, stream);
}

status cudaMemcpy(void *to, const void *from, size_t bytes, UNUSED int kind)
{
    copy_bytes(to, from, bytes);
    return SUCCESS;
}

status cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, UNUSED void *stream)
{
    return cudaMemcpy(to, from, bytes, kind);
}

status cudaMemset(void *to, int value, size_t bytes)
{
    unsigned char byte = (unsigned char)value;
    fill_bytes(to, &byte, 1, bytes);
    return SUCCESS;
}

status cudaMemsetAsync(void *to, int value, size_t bytes, UNUSED void *stream)
{
    return cudaMemset(to, value, bytes);
}

struct pointer_attributes {
    int type; /* 0 unregistered, 2 device */
    int device;
    void *device_address;
    void *host_address;
};

status cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *address)
{
    int card = card_of(address);
    *attributes = (struct pointer_attributes){
        .type = card < 0 ? 0 : 2,
        .device = card < 0 ? active_card() : card,
        .device_address = (void *)address,
        .host_address = card < 0 ? (void *)address : NULL,
    };
    return SUCCESS;
}

status cudaGetSymbolAddress(void **address, UNUSED const void *symbol)
{
    return cudaMalloc(address, 64 * KIB);
}

/* ---- streams and events ---- */

status cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    return cuStreamCreateWithPriority(stream, flags, priority);
}

status cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

status cudaStreamCreate(void **stream)
{
    return cuStreamCreateWithPriority(stream, 0, 0);
}

status cudaStreamDestroy(void *stream)
{
    return cuStreamDestroy_v2(stream);
}

status cudaStreamSynchronize(UNUSED void *stream)
{
    return SUCCESS;
}

status cudaStreamQuery(UNUSED void *stream)
{
    return SUCCESS;
}

status cudaStreamWaitEvent(UNUSED void *stream, UNUSED void *event, UNUSED unsigned flags)
{
    return SUCCESS;
}

status cudaStreamIsCapturing(UNUSED void *stream, int *capturing)
{
    *capturing = 0;
    return SUCCESS;
}

status cudaStreamGetCaptureInfo_v2(UNUSED void *stream, int *capturing, unsigned long long *id, UNUSED void **graph,
                                   UNUSED const void ***nodes, size_t *count)
{
    *capturing = 0;
    if (id)
        *id = 0;
    if (count)
        *count = 0;
    return SUCCESS;
}

status cudaEventCreateWithFlags(void **event, unsigned flags)
{
    return cuEventCreate(event, flags);
}

status cudaEventCreate(void **event)
{
    return cuEventCreate(event, 0);
}

status cudaEventDestroy(void *event)
{
    return cuEventDestroy_v2(event);
}

status cudaEventRecord(UNUSED void *event, UNUSED void *stream)
{
    return SUCCESS;
}

status cudaEventSynchronize(UNUSED void *event)
{
    return SUCCESS;
}

status cudaEventQuery(UNUSED void *event)
{
    return SUCCESS;
}

status cudaEventElapsedTime(float *milliseconds, UNUSED void *start, UNUSED void *stop)
{
    *milliseconds = elapsed_ms;
    return SUCCESS;
}

/* ---- functions ---- */

/* TensorFlow ships code for 6.0, 7.0, 8.0 and 8.9; a card runs the newest of its own major version. */
static int code_version(int card)
{
    static const int shipped[] = {89, 80, 70, 60};
    int capability = cards[card].about.compute_major * 10 + cards[card].about.compute_minor;
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (shipped[i] / 10 == capability / 10 && shipped[i] <= capability)
            return shipped[i];
    return capability;
}

/* A struct of 144 bytes: three sizes, then threads in a block, registers, and what the code was built for. */
status cudaFuncGetAttributes(char *attributes, UNUSED const void *function)
{
    memset(attributes, 0, 144);
    int version = code_version(active_card());
    const struct {
        int offset;
        int32_t value;
    } numbers[] = {{24, 1024}, {28, 32}, {32, version}, {36, version}, {44, 49152}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        memcpy(attributes + numbers[i].offset, &numbers[i].value, 4);
    return SUCCESS;
}

status cudaFuncSetAttribute(UNUSED const void *function, UNUSED int attribute, UNUSED int value)
{
    return SUCCESS;
}

status cudaFuncSetCacheConfig(UNUSED const void *function, UNUSED int config)
{
    return SUCCESS;
}

status cudaGetFuncBySymbol(void **function, const void *symbol)
{
    *function = (void *)symbol;
    return SUCCESS;
}

status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, bytes);
}

status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                              size_t bytes, UNUSED unsigned flags)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, bytes);
}

/* ---- errors ---- */

status cudaGetLastError(void)
{
    return SUCCESS;
}

status cudaPeekAtLastError(void)
{
    return SUCCESS;
}

const char *cudaGetErrorString(status error)
{
    const char *text;
    cuGetErrorString(error, &text);
    return text;
}

const char *cudaGetErrorName(status error)
{
    return error == SUCCESS ? "cudaSuccess" : error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaError";
}

status cudaGetDriverEntryPoint(const char *name, void **function, UNUSED unsigned long long flags, int *result)
{
    return cuGetProcAddress_v2(name, function, CUDA_VERSION_NUMBER, 0, result);
}
