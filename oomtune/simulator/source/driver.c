/* The CUDA driver (libcuda.so.1). Everything that is enqueued has already happened: there is nothing to wait for. */
#define _GNU_SOURCE
#include "simulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

typedef int status;
typedef uintptr_t device_address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
};

static status check_device(int device)
{
    return device >= 0 && device < card_count ? SUCCESS : INVALID_DEVICE;
}

/* ---- start, devices ---- */

status cuInit(unsigned flags)
{
    (void)flags;
    return card_count ? SUCCESS : NO_DEVICE;
}

status cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION_NUMBER;
    return SUCCESS;
}

status cuDeviceGetCount(int *count)
{
    *count = card_count;
    return SUCCESS;
}

status cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return check_device(ordinal);
}

status cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "%s", cards[device].about.name);
    return SUCCESS;
}

status cuDeviceGetUuid(char *uuid, int device)
{
    device_uuid(uuid, device);
    return SUCCESS;
}

status cuDeviceGetUuid_v2(char *uuid, int device)
{
    return cuDeviceGetUuid(uuid, device);
}

status cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = cards[device].about.total_bytes;
    return SUCCESS;
}

status cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = device_attribute(attribute, device);
    return SUCCESS;
}

status cuDeviceGetPCIBusId(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "0000:%02X:00.0", device + 1);
    return SUCCESS;
}

status cuDeviceGetByPCIBusId(int *device, const char *name)
{
    unsigned domain, bus;
    if (sscanf(name, "%x:%x", &domain, &bus) != 2 || bus < 1)
        return INVALID_VALUE;
    *device = (int)bus - 1;
    return check_device(*device);
}

status cuDeviceComputeCapability(int *major, int *minor, int device)
{
    *major = cards[device].about.compute_major;
    *minor = cards[device].about.compute_minor;
    return SUCCESS;
}

status cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return SUCCESS;
}

status cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to)
{
    (void)attribute;
    *value = from != to;
    return SUCCESS;
}

/* ---- contexts: a card's context is the card ---- */

status cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &cards[device];
    return check_device(device);
}

status cuDevicePrimaryCtxRelease_v2(int device)
{
    return check_device(device);
}

status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = cards[device].context_flags;
    *active = 0;
    return SUCCESS;
}

status cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
    cards[device].context_flags = flags;
    return SUCCESS;
}

status cuCtxSetCurrent(void *context)
{
    current_card = context ? (int)((struct card *)context - cards) : -1;
    return SUCCESS;
}

status cuCtxGetCurrent(void **context)
{
    *context = current_card < 0 ? NULL : &cards[current_card];
    return SUCCESS;
}

status cuCtxGetDevice(int *device)
{
    *device = active_card();
    return current_card < 0 ? INVALID_CONTEXT : SUCCESS;
}

status cuCtxGetApiVersion(void *context, unsigned *version)
{
    (void)context;
    *version = CUDA_VERSION_NUMBER;
    return SUCCESS;
}

status cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

status cuCtxSynchronize(void)
{
    return SUCCESS;
}

status cuCtxEnablePeerAccess(void *context, unsigned flags)
{
    (void)context, (void)flags;
    return SUCCESS;
}

/* ---- memory ---- */

status cuMemGetInfo_v2(size_t *available, size_t *total)
{
    const struct card *card = &cards[active_card()];
    *total = card->about.total_bytes;
    *available = card->about.total_bytes - card->about.context_bytes - card->used_bytes;
    return SUCCESS;
}

status cuMemAlloc_v2(device_address *address, size_t bytes)
{
    if (!bytes)
        return INVALID_VALUE;
    *address = (device_address)allocate(active_card(), bytes);
    return *address ? SUCCESS : OUT_OF_MEMORY;
}

status cuMemAllocManaged(device_address *address, size_t bytes, unsigned flags)
{
    (void)flags;
    return cuMemAlloc_v2(address, bytes);
}

status cuMemFree_v2(device_address address)
{
    return !address || release((void *)address) ? SUCCESS : INVALID_VALUE;
}

status cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    return posix_memalign(address, 4096, bytes ? bytes : 1) ? OUT_OF_MEMORY : SUCCESS;
}

status cuMemAllocHost_v2(void **address, size_t bytes)
{
    return cuMemHostAlloc(address, bytes, 0);
}

status cuMemFreeHost(void *address)
{
    free(address);
    return SUCCESS;
}

status cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    (void)address, (void)bytes, (void)flags;
    return SUCCESS;
}

status cuMemHostUnregister(void *address)
{
    (void)address;
    return SUCCESS;
}

status cuMemHostGetDevicePointer_v2(device_address *device, void *host, unsigned flags)
{
    (void)flags;
    *device = (device_address)host;
    return SUCCESS;
}

status cuMemGetAddressRange_v2(device_address *base, size_t *bytes, device_address address)
{
    void *start;
    size_t size;
    if (!find_allocation((void *)address, &start, &size, NULL))
        return NOT_FOUND;
    if (base)
        *base = (device_address)start;
    if (bytes)
        *bytes = size;
    return SUCCESS;
}

static status pointer_attribute(void *value, int attribute, device_address address)
{
    int card = card_of((void *)address);
    switch (attribute) {
    case 1: /* context */
        *(void **)value = card < 0 ? NULL : &cards[card];
        return SUCCESS;
    case 2: /* memory type: host or device */
        *(unsigned *)value = card < 0 ? 1 : 2;
        return SUCCESS;
    case 3: case 4: /* the address on the device and on the host */
        *(device_address *)value = address;
        return SUCCESS;
    case 9: /* device; TensorFlow ends the process if it has none */
        *(int *)value = card < 0 ? active_card() : card;
        return SUCCESS;
    case 11: /* start of the allocation */
        return find_allocation((void *)address, value, NULL, NULL) ? SUCCESS : INVALID_VALUE;
    case 12: /* its size */
        return find_allocation((void *)address, NULL, value, NULL) ? SUCCESS : INVALID_VALUE;
    default:
        *(unsigned *)value = 0;
        return SUCCESS;
    }
}

status cuPointerGetAttribute(void *value, int attribute, device_address address)
{
    return pointer_attribute(value, attribute, address);
}

status cuPointerGetAttributes(unsigned count, const int *attributes, void **values, device_address address)
{
    status result = SUCCESS;
    for (unsigned i = 0; i < count && result == SUCCESS; i++)
        result = pointer_attribute(values[i], attributes[i], address);
    return result;
}

/* ---- memory pools: `cuda_malloc_async` ---- */

struct pool {
    int card;
    uint64_t threshold;
    uint64_t used;
    uint64_t high;
};

static struct pool default_pools[MAX_CARDS];

status cuDeviceGetDefaultMemPool(struct pool **pool, int device)
{
    default_pools[device].card = device;
    *pool = &default_pools[device];
    return SUCCESS;
}

status cuDeviceGetMemPool(struct pool **pool, int device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

status cuDeviceSetMemPool(int device, struct pool *pool)
{
    (void)pool;
    return check_device(device);
}

status cuMemPoolCreate(struct pool **pool, const int32_t *properties)
{
    *pool = new_object(sizeof **pool);
    (*pool)->card = properties[3]; /* location.id */
    return SUCCESS;
}

status cuMemPoolDestroy(struct pool *pool)
{
    (void)pool; /* default pools are not ours to free, and others are few */
    return SUCCESS;
}

status cuMemPoolSetAttribute(struct pool *pool, int attribute, void *value)
{
    if (attribute == 4) /* release threshold */
        pool->threshold = *(uint64_t *)value;
    if (attribute == 6 || attribute == 8) /* high-water marks can only be reset */
        pool->high = pool->used;
    return SUCCESS;
}

status cuMemPoolGetAttribute(struct pool *pool, int attribute, void *value)
{
    switch (attribute) {
    case 1: case 2: case 3: /* ways to reuse memory */
        *(int *)value = 1;
        break;
    case 4:
        *(uint64_t *)value = pool->threshold;
        break;
    case 5: case 7: /* reserved and used now */
        *(uint64_t *)value = pool->used;
        break;
    default:
        *(uint64_t *)value = pool->high;
    }
    return SUCCESS;
}

status cuMemPoolSetAccess(struct pool *pool, const void *access, size_t count)
{
    (void)pool, (void)access, (void)count;
    return SUCCESS;
}

status cuMemPoolGetAccess(int *access, struct pool *pool, const void *location)
{
    (void)pool, (void)location;
    *access = 3; /* read and write */
    return SUCCESS;
}

status cuMemPoolTrimTo(struct pool *pool, size_t bytes)
{
    (void)pool, (void)bytes;
    return SUCCESS;
}

status cuMemAllocFromPoolAsync(device_address *address, size_t bytes, struct pool *pool, void *stream)
{
    (void)stream;
    *address = (device_address)allocate_aligned(pool->card, bytes, 512);
    if (!*address)
        return OUT_OF_MEMORY;
    uint64_t used = __atomic_add_fetch(&pool->used, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
    if (used > pool->high)
        pool->high = used;
    return SUCCESS;
}

status cuMemAllocAsync(device_address *address, size_t bytes, void *stream)
{
    struct pool *pool;
    cuDeviceGetDefaultMemPool(&pool, active_card());
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

status cuMemFreeAsync(device_address address, void *stream)
{
    (void)stream;
    size_t bytes;
    int card;
    if (!find_allocation((void *)address, NULL, &bytes, &card) || !release((void *)address))
        return INVALID_VALUE;
    __atomic_sub_fetch(&default_pools[card].used, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
    return SUCCESS;
}

/* ---- copies ---- */

static status copy(device_address to, device_address from, size_t bytes)
{
    copy_bytes((void *)to, (const void *)from, bytes);
    return SUCCESS;
}

#define COPY(name, ...)                                                                                                \
    status name(device_address to, device_address from, size_t bytes __VA_ARGS__)                                      \
    {                                                                                                                  \
        return copy(to, from, bytes);                                                                                  \
    }
#define ON_STREAM , UNUSED void *stream

COPY(cuMemcpy)
COPY(cuMemcpyHtoD_v2)
COPY(cuMemcpyDtoH_v2)
COPY(cuMemcpyDtoD_v2)
COPY(cuMemcpyAsync, ON_STREAM)
COPY(cuMemcpyHtoDAsync_v2, ON_STREAM)
COPY(cuMemcpyDtoHAsync_v2, ON_STREAM)
COPY(cuMemcpyDtoDAsync_v2, ON_STREAM)

status cuMemcpyPeerAsync(device_address to, UNUSED void *to_context, device_address from, UNUSED void *from_context,
                         size_t bytes, UNUSED void *stream)
{
    return copy(to, from, bytes);
}

status cuMemcpyPeer(device_address to, void *to_context, device_address from, void *from_context, size_t bytes)
{
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, NULL);
}

#define FILL(name, type, ...)                                                                                          \
    status name(device_address to, type value, size_t count __VA_ARGS__)                                               \
    {                                                                                                                  \
        fill_bytes((void *)to, &value, sizeof value, count);                                                           \
        return SUCCESS;                                                                                                \
    }

FILL(cuMemsetD8_v2, uint8_t)
FILL(cuMemsetD16_v2, uint16_t)
FILL(cuMemsetD32_v2, uint32_t)
FILL(cuMemsetD8Async, uint8_t, ON_STREAM)
FILL(cuMemsetD16Async, uint16_t, ON_STREAM)
FILL(cuMemsetD32Async, uint32_t, ON_STREAM)

/* ---- streams and events ---- */

struct stream {
    int card;
    int priority;
};

status cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority)
{
    (void)flags;
    *stream = new_object(sizeof **stream);
    **stream = (struct stream){.card = active_card(), .priority = priority};
    return SUCCESS;
}

status cuStreamCreate(struct stream **stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

status cuStreamDestroy_v2(struct stream *stream)
{
    free(stream);
    return SUCCESS;
}

status cuStreamSynchronize(UNUSED struct stream *stream)
{
    return SUCCESS;
}

status cuStreamQuery(UNUSED struct stream *stream)
{
    return SUCCESS;
}

status cuStreamWaitEvent(UNUSED struct stream *stream, UNUSED void *event, UNUSED unsigned flags)
{
    return SUCCESS;
}

status cuStreamGetPriority(const struct stream *stream, int *priority)
{
    *priority = stream ? stream->priority : 0;
    return SUCCESS;
}

status cuStreamGetCtx(const struct stream *stream, void **context)
{
    /* The values 0 to 2 stand for default streams. */
    *context = &cards[(uintptr_t)stream > 2 ? stream->card : active_card()];
    return SUCCESS;
}

status cuStreamIsCapturing(UNUSED struct stream *stream, int *capturing)
{
    *capturing = 0;
    return SUCCESS;
}

status cuStreamGetCaptureInfo_v2(UNUSED struct stream *stream, int *capturing, uint64_t *id, UNUSED void **graph,
                                 UNUSED void **nodes, size_t *node_count)
{
    *capturing = 0;
    if (id)
        *id = 0;
    if (node_count)
        *node_count = 0;
    return SUCCESS;
}

status cuStreamAddCallback(struct stream *stream, void (*callback)(void *, status, void *), void *data,
                           UNUSED unsigned flags)
{
    callback(stream, SUCCESS, data);
    return SUCCESS;
}

status cuLaunchHostFunc(UNUSED struct stream *stream, void (*function)(void *), void *data)
{
    function(data);
    return SUCCESS;
}

status cuEventCreate(void **event, UNUSED unsigned flags)
{
    *event = new_object(1);
    return SUCCESS;
}

status cuEventDestroy_v2(void *event)
{
    free(event);
    return SUCCESS;
}

status cuEventRecord(UNUSED void *event, UNUSED struct stream *stream)
{
    return SUCCESS;
}

status cuEventQuery(UNUSED void *event)
{
    return SUCCESS;
}

status cuEventSynchronize(UNUSED void *event)
{
    return SUCCESS;
}

status cuEventElapsedTime(float *milliseconds, UNUSED void *start, UNUSED void *stop)
{
    *milliseconds = elapsed_ms;
    return SUCCESS;
}

/* ---- modules and kernels ---- */

struct function {
    void *module;
    char name[];
};

status cuModuleLoadData(void **module, UNUSED const void *image)
{
    *module = new_object(1);
    return SUCCESS;
}

status cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options, void **values)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] == 4 || options[i] == 6) /* sizes of the logs that the compiler filled */
            values[i] = NULL;
    return cuModuleLoadData(module, image);
}

status cuModuleLoadFatBinary(void **module, const void *image)
{
    return cuModuleLoadData(module, image);
}

status cuModuleUnload(void *module)
{
    free(module);
    return SUCCESS;
}

status cuModuleGetFunction(struct function **function, void *module, const char *name)
{
    *function = new_object(sizeof **function + strlen(name) + 1);
    (*function)->module = module;
    strcpy((*function)->name, name);
    return SUCCESS;
}

status cuModuleGetGlobal_v2(device_address *address, size_t *bytes, UNUSED void *module, UNUSED const char *name)
{
    static const size_t MOST = 64 * KIB; /* constant memory has no more */
    device_address start;
    status result = cuMemAlloc_v2(&start, MOST);
    if (address)
        *address = start;
    if (bytes)
        *bytes = MOST;
    return result;
}

status cuModuleGetLoadingMode(int *mode)
{
    *mode = 2; /* lazy */
    return SUCCESS;
}

status cuFuncGetModule(void **module, const struct function *function)
{
    *module = function->module;
    return SUCCESS;
}

status cuFuncGetName(const char **name, const struct function *function)
{
    *name = function->name;
    return SUCCESS;
}

status cuFuncGetAttribute(int *value, int attribute, UNUSED const void *function)
{
    const struct card_description *about = &cards[active_card()].about;
    switch (attribute) {
    case 0: *value = 1024; break;                                           /* threads in a block */
    case 4: *value = 32; break;                                             /* registers of a thread */
    case 5: case 6: *value = about->compute_major * 10 + about->compute_minor; break; /* built for */
    default: *value = 0;
    }
    return SUCCESS;
}

status cuFuncSetAttribute(UNUSED void *function, UNUSED int attribute, UNUSED int value)
{
    return SUCCESS;
}

status cuFuncSetCacheConfig(UNUSED void *function, UNUSED int config)
{
    return SUCCESS;
}

status cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, UNUSED const void *function, int threads,
                                                   UNUSED size_t shared_bytes)
{
    int fitting = device_attribute(39, active_card()) / (threads > 0 ? threads : 1);
    *blocks = fitting < 1 ? 1 : fitting > 16 ? 16 : fitting;
    return SUCCESS;
}

status cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                            size_t shared_bytes, UNUSED unsigned flags)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

status cuLaunchKernel(UNUSED const void *function, UNUSED unsigned grid_x, UNUSED unsigned grid_y,
                      UNUSED unsigned grid_z, UNUSED unsigned block_x, UNUSED unsigned block_y,
                      UNUSED unsigned block_z, UNUSED unsigned shared_bytes, UNUSED struct stream *stream,
                      UNUSED void **arguments, UNUSED void **extra)
{
    return SUCCESS;
}

status cuLaunchKernelEx(UNUSED const void *config, UNUSED const void *function, UNUSED void **arguments,
                        UNUSED void **extra)
{
    return SUCCESS;
}

/* ---- linking: XLA links the code that ptxas made ---- */

status cuLinkCreate_v2(UNUSED unsigned count, UNUSED const int *options, UNUSED void **values, void **state)
{
    *state = new_object(1);
    return SUCCESS;
}

status cuLinkAddData_v2(UNUSED void *state, UNUSED int type, UNUSED void *data, UNUSED size_t bytes,
                        UNUSED const char *name, UNUSED unsigned count, UNUSED const int *options, UNUSED void **values)
{
    return SUCCESS;
}

status cuLinkComplete(UNUSED void *state, void **image, size_t *bytes)
{
    static char empty_elf[64] = "\177ELF";
    *image = empty_elf;
    *bytes = sizeof empty_elf;
    return SUCCESS;
}

status cuLinkDestroy(void *state)
{
    free(state);
    return SUCCESS;
}

/* ---- errors, names ---- */

status cuGetErrorName(status error, const char **name)
{
    *name = error == SUCCESS ? "CUDA_SUCCESS" : error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return SUCCESS;
}

status cuGetErrorString(status error, const char **text)
{
    *text = error == SUCCESS ? "no error" : error == OUT_OF_MEMORY ? "out of memory" : "error of the simulated card";
    return SUCCESS;
}

/* Look a function up by its base name: the newest version counts. */
status cuGetProcAddress_v2(const char *name, void **function, UNUSED int version, UNUSED uint64_t flags, int *result)
{
    static void *self;
    if (!self) {
        Dl_info info;
        dladdr((void *)cuInit, &info);
        self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    *function = NULL;
    for (int i = 3; i >= 1 && !*function; i--) {
        char versioned[128];
        snprintf(versioned, sizeof versioned, i > 1 ? "%s_v%d" : "%s", name, i);
        *function = dlsym(self, versioned);
    }
    if (result)
        *result = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
