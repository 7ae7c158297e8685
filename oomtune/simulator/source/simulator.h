/*
 * A simulated CUDA card: what all files of the simulator share.
 *
 * The simulator stands in for the CUDA libraries that TensorFlow opens at run time. It keeps real accounts of device
 * memory, so TensorFlow's own allocator meets the card's real limit, but it computes nothing: kernels are accepted and
 * have no effect.
 *
 * All declarations here are our own. Function names, argument orders, constants and struct offsets are those of
 * CUDA 12.
 */
#ifndef OOMTUNE_SIMULATOR_H
#define OOMTUNE_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

#define MAX_CARDS 16

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* Exported functions are found by TensorFlow through dlsym. Everything else stays inside the library. */
#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

/* The versions that every library reports: CUDA 12.5, cuDNN 9.3, cuBLAS 12.5.3. TensorFlow 2.18 to 2.21 accept them. */
enum {
    CUDA_VERSION_NUMBER = 12050,
    CUBLAS_VERSION_NUMBER = 120503,
    CUDNN_VERSION_NUMBER = 90300,
    NCCL_VERSION_NUMBER = 22304,
};

/* What describes a card. `load.py` fills in the same layout. */
struct card_description {
    char name[96];
    int32_t compute_major;
    int32_t compute_minor;
    int32_t multiprocessors;
    int32_t reserved;
    uint64_t total_bytes;
    uint64_t context_bytes; /* what the CUDA context takes before TensorFlow allocates anything */
    uint64_t workspace_permille; /* convolution workspace, in thousandths of the bytes of input plus output */
};

struct card {
    struct card_description about;
    size_t used_bytes; /* live device allocations */
    size_t peak_bytes;
    char *base; /* the window of addresses that stands for device memory */
    size_t window_bytes;
    uint64_t *written; /* one bit for each 256 bytes: set where memory holds bytes that the host wrote */
    unsigned context_flags;
};

extern struct card cards[MAX_CARDS];
extern int card_count;
extern _Thread_local int current_card; /* the card of this thread's context; -1 without one */

/* The current card's index; the first card if this thread has no context yet. */
int active_card(void);

/* Device memory. Sizes are in bytes; an address belongs to a card if it lies in the card's window. */
void *allocate(int card, size_t bytes);
void *allocate_aligned(int card, size_t bytes, size_t granularity);
int release(void *address);
int card_of(const void *address);
int find_allocation(const void *address, void **base, size_t *bytes, int *card);

/* Contents. Device memory reads as zero until the host writes to it; a lone byte that nobody wrote reads as 1. */
void copy_bytes(void *to, const void *from, size_t bytes);
void fill_bytes(void *to, const void *pattern, size_t pattern_bytes, size_t count);

/* Device attributes have the same numbers in the driver and in the runtime. */
int device_attribute(int attribute, int card);
void device_uuid(char uuid[16], int card);

/* The time in milliseconds between any two events. cuDNN's autotuner must see its two engines differ. */
extern _Atomic float elapsed_ms;

/* An object that a caller only passes back to us. */
void *new_object(size_t bytes);

/* Remember a function that the simulator does not have, so that a failure can name it. */
void report_unknown(const char *name);

#endif
