/* Cards, their memory, and what the host reads back from it. */
#define _GNU_SOURCE
#include "simulator.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct card cards[MAX_CARDS];
int card_count;
_Thread_local int current_card = -1;
_Atomic float elapsed_ms = 0.05f;

enum { UNIT = 256, PAGE = 4096 }; /* TensorFlow's allocator hands out multiples of 256 bytes */

/* A live allocation. The list of each card is sorted by address. */
struct block {
    char *address;
    size_t bytes;     /* rounded up to the granularity */
    size_t requested;
    struct block *next;
};

static struct block *blocks[MAX_CARDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char unknown_names[4096];

/*
 * Set the cards of this process. Call it before TensorFlow first asks for devices; a forked child may call it again to
 * get other cards than its parent. Returns 0, or -1 if there are too many cards.
 */
EXPORT int oomtune_set_cards(const struct card_description *descriptions, int count)
{
    if (count < 0 || count > MAX_CARDS)
        return -1;
    memset(cards, 0, sizeof cards);
    for (int i = 0; i < count; i++)
        cards[i].about = descriptions[i];
    card_count = count;
    return 0;
}

/* The names of the functions that were called although the simulator does not have them, separated by spaces. */
EXPORT const char *oomtune_unknown_functions(void)
{
    return unknown_names;
}

void report_unknown(const char *name)
{
    pthread_mutex_lock(&lock);
    size_t used = strlen(unknown_names);
    if (!strstr(unknown_names, name) && used + strlen(name) + 2 < sizeof unknown_names) {
        snprintf(unknown_names + used, sizeof unknown_names - used, "%s%s", used ? " " : "", name);
        fprintf(stderr, "oomtune: the simulator does not know %s\n", name);
    }
    pthread_mutex_unlock(&lock);
}

void *new_object(size_t bytes)
{
    return calloc(1, bytes);
}

int active_card(void)
{
    return current_card < 0 ? 0 : current_card;
}

/* ---- allocation ---- */

/* Reserve addresses without memory behind them: the kernel supplies a page only when somebody writes to it. */
static void *reserve(size_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

/* Four times the card, so that a free piece is found by address alone and fragmentation never decides. */
static int open_window(struct card *card)
{
    if (card->base)
        return 1;
    size_t alignment = 2 * MIB;
    size_t bytes = 4 * card->about.total_bytes + GIB;
    char *start = reserve(bytes);
    uint64_t *written = start ? reserve(bytes / UNIT / 8 + 64) : NULL;
    if (!written)
        return 0;
    madvise(start, bytes, MADV_NOHUGEPAGE); /* one written byte must not cost 2 MiB of host memory */
    madvise(start, bytes, MADV_DONTDUMP);
    uintptr_t aligned = ((uintptr_t)start + alignment - 1) & ~(uintptr_t)(alignment - 1);
    card->base = (char *)aligned;
    card->window_bytes = bytes - (aligned - (uintptr_t)start);
    card->written = written;
    return 1;
}

void *allocate_aligned(int index, size_t requested, size_t granularity)
{
    struct card *card = &cards[index];
    size_t bytes = ((requested ? requested : 1) + granularity - 1) / granularity * granularity;
    void *address = NULL;
    pthread_mutex_lock(&lock);
    size_t available = card->about.total_bytes - card->about.context_bytes;
    if (open_window(card) && card->used_bytes + bytes <= available) {
        struct block **link = &blocks[index];
        char *gap = card->base;
        while (*link && (size_t)((*link)->address - gap) < bytes) {
            gap = (*link)->address + (*link)->bytes;
            link = &(*link)->next;
        }
        struct block *block = malloc(sizeof *block);
        if (block && (size_t)(card->base + card->window_bytes - gap) >= bytes) {
            *block = (struct block){.address = gap, .bytes = bytes, .requested = requested, .next = *link};
            *link = block;
            card->used_bytes += bytes;
            if (card->used_bytes > card->peak_bytes)
                card->peak_bytes = card->used_bytes;
            address = gap;
        } else {
            free(block);
        }
    }
    pthread_mutex_unlock(&lock);
    return address;
}

/* The driver rounds large allocations up to 2 MiB. */
void *allocate(int card, size_t bytes)
{
    return allocate_aligned(card, bytes, bytes >= MIB ? 2 * MIB : 512);
}

static void forget_contents(void *address, size_t bytes);

int release(void *address)
{
    int index = card_of(address);
    int found = 0;
    if (index < 0)
        return 0;
    pthread_mutex_lock(&lock);
    for (struct block **link = &blocks[index]; *link && !found; link = found ? link : &(*link)->next)
        if ((*link)->address == address) {
            struct block *block = *link;
            *link = block->next;
            cards[index].used_bytes -= block->bytes;
            forget_contents(block->address, block->bytes);
            free(block);
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int card_of(const void *address)
{
    for (int i = 0; i < card_count; i++)
        if (cards[i].base && (size_t)((const char *)address - cards[i].base) < cards[i].window_bytes)
            return i;
    return -1;
}

int find_allocation(const void *address, void **base, size_t *bytes, int *card)
{
    int index = card_of(address);
    int found = 0;
    if (index < 0)
        return 0;
    pthread_mutex_lock(&lock);
    for (struct block *block = blocks[index]; block && !found; block = block->next)
        if ((size_t)((const char *)address - block->address) < block->bytes) {
            if (base)
                *base = block->address;
            if (bytes)
                *bytes = block->requested;
            if (card)
                *card = index;
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

/*
 * ---- contents ----
 *
 * Kernels write nothing, so a tensor has to read as something harmless: zero, from its allocation on. What the host
 * uploads stays readable until the memory is handed out again. A lone byte that nobody wrote reads as 1: it is the
 * result of a reduction to one bool, such as "are all gradients finite?", and loss scaling would skip every update
 * otherwise.
 */

static const size_t MAX_KEPT_UPLOAD = MIB; /* nobody reads back a larger upload, and keeping it costs host memory */
static const unsigned char LONE_BOOL = 1;

static size_t first_unit(const struct card *card, const void *address)
{
    return (size_t)((const char *)address - card->base) / UNIT;
}

static size_t last_unit(const struct card *card, const void *address, size_t bytes)
{
    return ((size_t)((const char *)address - card->base) + bytes + UNIT - 1) / UNIT;
}

static int holds_bytes(const void *address, size_t bytes)
{
    const struct card *card = &cards[card_of(address)];
    size_t stop = last_unit(card, address, bytes);
    for (size_t i = first_unit(card, address); i < stop;) {
        if (i % 64 == 0 && i + 64 <= stop) {
            if (card->written[i / 64])
                return 1;
            i += 64;
        } else {
            if (card->written[i / 64] >> (i % 64) & 1)
                return 1;
            i++;
        }
    }
    return 0;
}

static void mark(const void *address, size_t bytes, int holds)
{
    struct card *card = &cards[card_of(address)];
    size_t stop = last_unit(card, address, bytes);
    for (size_t i = first_unit(card, address); i < stop;) {
        uint64_t *word = &card->written[i / 64];
        if (i % 64 == 0 && i + 64 <= stop) {
            if (holds || *word) /* do not touch a page of zeros to write zeros */
                *word = holds ? ~(uint64_t)0 : 0;
            i += 64;
        } else {
            uint64_t bit = (uint64_t)1 << (i % 64);
            if (holds)
                __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
            else
                __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
            i++;
        }
    }
}

/* Set memory to zero, and give whole pages back to the host. */
static void wipe(char *address, size_t bytes)
{
    uintptr_t start = ((uintptr_t)address + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t stop = ((uintptr_t)address + bytes) & ~(uintptr_t)(PAGE - 1);
    if (bytes < 16 * PAGE || stop <= start) {
        memset(address, 0, bytes);
        return;
    }
    memset(address, 0, start - (uintptr_t)address);
    madvise((void *)start, stop - start, MADV_DONTNEED);
    memset((void *)stop, 0, (uintptr_t)address + bytes - stop);
}

static void forget_contents(void *address, size_t bytes)
{
    if (holds_bytes(address, bytes)) {
        wipe(address, bytes);
        mark(address, bytes, 0);
    }
}

/* TensorFlow's allocator handed out this piece of a region (see hooks.c): it reads as zero from now on. */
EXPORT void oomtune_fresh_tensor(void *address, size_t bytes)
{
    if (bytes && card_of(address) >= 0)
        forget_contents(address, bytes);
}

void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (!bytes || to == from)
        return;
    int to_device = card_of(to) >= 0, from_device = card_of(from) >= 0;
    int has_source = !from_device || holds_bytes(from, bytes);
    if (!to_device) {
        if (has_source)
            memmove(to, from, bytes);
        else
            memset(to, bytes == 1 ? LONE_BOOL : 0, bytes);
    } else if (!has_source || bytes > MAX_KEPT_UPLOAD) {
        forget_contents(to, bytes);
    } else {
        memmove(to, from, bytes);
        mark(to, bytes, 1);
    }
}

static int is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return 0;
    return 1;
}

void fill_bytes(void *to, const void *pattern, size_t pattern_bytes, size_t count)
{
    size_t bytes = pattern_bytes * count;
    int on_device = card_of(to) >= 0;
    if (on_device && bytes > MAX_KEPT_UPLOAD) {
        forget_contents(to, bytes);
        return;
    }
    if (on_device && is_zero(pattern, pattern_bytes)) {
        forget_contents(to, bytes);
        if (bytes > 1)
            return; /* unwritten memory reads as zero anyway; only a lone byte would read as 1 */
    }
    for (size_t i = 0; i < count; i++)
        memcpy((char *)to + i * pattern_bytes, pattern, pattern_bytes);
    if (on_device)
        mark(to, bytes, 1);
}

/* ---- device attributes ---- */

void device_uuid(char uuid[16], int card)
{
    memcpy(uuid, "oomtune-card-", 13);
    uuid[13] = (char)('A' + card);
    uuid[14] = uuid[15] = 1;
}

/* Sizes that follow from the compute capability, as in the tables of NVIDIA's programming guide. */
struct generation {
    int capability; /* major * 10 + minor; the first row that is not larger than the card's counts */
    int threads_per_multiprocessor;
    int blocks_per_multiprocessor;
    int shared_bytes_per_multiprocessor;
    int shared_bytes_per_block; /* the most that a kernel may ask for */
    int cache_bytes;
};

static const struct generation *generation_of(int card)
{
    static const struct generation generations[] = {
        {120, 1536, 24, 102400, 101376, 100663296}, {90, 2048, 32, 233472, 232448, 52428800},
        {89, 1536, 24, 102400, 101376, 50331648},   {86, 1536, 16, 102400, 101376, 6291456},
        {80, 2048, 32, 167936, 166912, 41943040},   {75, 1024, 16, 65536, 65536, 4194304},
        {70, 2048, 32, 98304, 98304, 6291456},      {60, 2048, 32, 65536, 49152, 4194304},
        {0, 2048, 16, 49152, 49152, 1572864},
    };
    int capability = cards[card].about.compute_major * 10 + cards[card].about.compute_minor;
    const struct generation *row = generations;
    while (row->capability > capability)
        row++;
    return row;
}

int device_attribute(int attribute, int index)
{
    const struct card_description *about = &cards[index].about;
    const struct generation *generation = generation_of(index);
    switch (attribute) {
    case 1: case 2: case 3: return 1024;  /* threads in a block, and its width and height */
    case 4: return 64;                    /* its depth */
    case 5: return 2147483647;            /* width of a grid */
    case 6: case 7: return 65535;         /* its height and depth */
    case 8: return 49152;                 /* shared memory of a block */
    case 9: return 65536;                 /* constant memory */
    case 10: return 32;                   /* threads in a warp */
    case 11: return 2147483647;           /* largest pitch of a copy */
    case 12: case 82: return 65536;       /* registers of a block, and of a multiprocessor */
    case 13: return 1590000;              /* clock in kHz */
    case 14: case 30: return 512;         /* alignment of textures and surfaces */
    case 15: case 19: case 31: return 1;  /* overlap, mapped host memory, concurrent kernels */
    case 16: return about->multiprocessors;
    case 33: return index + 1;            /* PCI bus */
    case 36: return 5001000;              /* memory clock in kHz */
    case 37: return 256;                  /* width of the memory bus */
    case 38: return generation->cache_bytes;
    case 39: return generation->threads_per_multiprocessor;
    case 40: return 3;                    /* copy engines */
    case 41: return 1;                    /* one address space with the host */
    case 51: return 32;                   /* alignment of a texture's pitch */
    case 75: return about->compute_major;
    case 76: return about->compute_minor;
    case 78: case 79: case 80: return 1;  /* stream priorities, first-level caches */
    case 81: return generation->shared_bytes_per_multiprocessor;
    case 83: case 89: case 90: return 1;  /* managed memory, also at the same time as the host, and preemption */
    case 85: return index;                /* board */
    case 87: return 32;                   /* single to double precision */
    case 91: case 95: case 98: case 99: return 1; /* host pointers, cooperative launch, remote writes, registering */
    case 97: return generation->shared_bytes_per_block;
    case 102: case 103: case 115: case 119: return 1; /* virtual memory, file handles, memory pools, their handles */
    case 106: return generation->blocks_per_multiprocessor;
    case 111: return about->compute_major >= 8 ? 1024 : 0; /* shared memory that the system takes of each block */
    default: return 0;
    }
}
