/*
 * Three functions of TensorFlow, wrapped. This library is loaded with RTLD_GLOBAL before TensorFlow, so the dynamic
 * linker finds these before TensorFlow's own functions, which they call.
 *
 * The names are those of C++ functions that `libtensorflow_framework.so.2` exports. `build.py` checks that it does; if
 * not, the simulator runs without this library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Before it reports out of memory, TensorFlow waits for other threads to free some. Its own choice is 10 s. */
static const int MAX_WAIT_MS = 300;

static void *original(const char *name)
{
    void *framework = dlopen("libtensorflow_framework.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *function = framework ? dlsym(framework, name) : NULL;
    return function ? function : dlsym(RTLD_NEXT, name);
}

/* Tell the simulator that a tensor begins here: what the host uploaded to this memory before no longer counts. */
static void begin_tensor(void *address, size_t bytes)
{
    static void (*fresh_tensor)(void *, size_t);
    static bool looked;
    if (!looked) {
        void *simulator = dlopen("liboomtune_simulator.so", RTLD_NOW | RTLD_NOLOAD);
        if (simulator)
            fresh_tensor = dlsym(simulator, "oomtune_fresh_tensor");
        looked = true;
    }
    if (address && fresh_tensor)
        fresh_tensor(address, bytes);
}

/* tsl::AllocatorRetry::AllocateRaw(std::function<...>, int max_millis_to_wait, size_t alignment, size_t bytes) */
#define ALLOCATE_WITH_RETRY _ZN3tsl14AllocatorRetry11AllocateRawESt8functionIFPvmmbEEimm
EXPORT void *ALLOCATE_WITH_RETRY(void *self, void *function, int wait_ms, size_t alignment, size_t bytes)
{
    static void *(*call)(void *, void *, int, size_t, size_t);
    if (!call)
        call = original("_ZN3tsl14AllocatorRetry11AllocateRawESt8functionIFPvmmbEEimm");
    return call(self, function, wait_ms > MAX_WAIT_MS ? MAX_WAIT_MS : wait_ms, alignment, bytes);
}

/* void *tsl::BFCAllocator::AllocateRawInternal(size_t alignment, size_t bytes, bool dump, uint64_t freed_before) */
#define ALLOCATE_CHUNK _ZN3tsl12BFCAllocator19AllocateRawInternalEmmbm
EXPORT void *ALLOCATE_CHUNK(void *self, size_t alignment, size_t bytes, bool dump, uint64_t freed_before)
{
    static void *(*call)(void *, size_t, size_t, bool, uint64_t);
    if (!call)
        call = original("_ZN3tsl12BFCAllocator19AllocateRawInternalEmmbm");
    void *address = call(self, alignment, bytes, dump, freed_before);
    begin_tensor(address, bytes);
    return address;
}

/*
 * std::unique_ptr<Tensor> tensorflow::OpKernelContext::forward_input(int input, int output, DataType,
 *     const TensorShape &, MemoryType, const AllocatorAttributes &)
 *
 * An op that writes its output over its input. A returned unique_ptr is written to an address that the caller gives.
 */
#define FORWARD_INPUT                                                                                                  \
    _ZN10tensorflow15OpKernelContext13forward_inputEiiNS_8DataTypeERKNS_11TensorShapeENS_10MemoryTypeERKN3tsl19AllocatorAttributesE
EXPORT void *FORWARD_INPUT(void **result, void *self, int input, int output, int type, const void *shape,
                           int memory_type, const void *attributes)
{
    static void *(*call)(void **, void *, int, int, int, const void *, int, const void *);
    static void *(*data)(const void *);
    static size_t (*total_bytes)(const void *);
    if (!call) {
        data = original("_ZNK10tensorflow6Tensor4dataEv");
        total_bytes = original("_ZNK10tensorflow6Tensor10TotalBytesEv");
        call = original("_ZN10tensorflow15OpKernelContext13forward_inputEiiNS_8DataTypeERKNS_11TensorShapeENS_"
                        "10MemoryTypeERKN3tsl19AllocatorAttributesE");
    }
    call(result, self, input, output, type, shape, memory_type, attributes);
    if (*result)
        begin_tensor(data(*result), total_bytes(*result));
    return result;
}
