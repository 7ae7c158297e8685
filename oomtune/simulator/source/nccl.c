/* NCCL, for training on several cards. Collectives are accepted and move nothing. */
#include "simulator.h"

#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

typedef int status;

enum { SUCCESS = 0 };

struct communicator {
    int count;
    int rank;
    int card;
};

struct unique_id {
    char bytes[128];
};

status ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_NUMBER;
    return SUCCESS;
}

status ncclGetUniqueId(struct unique_id *id)
{
    memset(id, 7, sizeof *id);
    return SUCCESS;
}

status ncclCommInitRank(struct communicator **communicator, int count, UNUSED struct unique_id id, int rank)
{
    *communicator = new_object(sizeof **communicator);
    **communicator = (struct communicator){.count = count, .rank = rank, .card = active_card()};
    return SUCCESS;
}

status ncclCommInitRankConfig(struct communicator **communicator, int count, struct unique_id id, int rank,
                              UNUSED void *config)
{
    return ncclCommInitRank(communicator, count, id, rank);
}

status ncclCommInitAll(struct communicator **communicators, int count, UNUSED const int *devices)
{
    struct unique_id id = {{0}};
    for (int rank = 0; rank < count; rank++)
        ncclCommInitRank(&communicators[rank], count, id, rank);
    return SUCCESS;
}

status ncclCommDestroy(struct communicator *communicator)
{
    free(communicator);
    return SUCCESS;
}

status ncclCommAbort(struct communicator *communicator)
{
    return ncclCommDestroy(communicator);
}

status ncclCommCount(const struct communicator *communicator, int *count)
{
    *count = communicator->count;
    return SUCCESS;
}

status ncclCommUserRank(const struct communicator *communicator, int *rank)
{
    *rank = communicator->rank;
    return SUCCESS;
}

status ncclCommCuDevice(const struct communicator *communicator, int *device)
{
    *device = communicator->card;
    return SUCCESS;
}

status ncclCommGetAsyncError(UNUSED struct communicator *communicator, status *error)
{
    *error = SUCCESS;
    return SUCCESS;
}

const char *ncclGetErrorString(status error)
{
    return error == SUCCESS ? "no error" : "error of the simulated card";
}

const char *ncclGetLastError(UNUSED struct communicator *communicator)
{
    return "";
}

#define NOTHING(name)                                                                                                  \
    status name(void)                                                                                                  \
    {                                                                                                                  \
        return SUCCESS;                                                                                                \
    }

NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)
NOTHING(ncclAllReduce)
NOTHING(ncclAllGather)
NOTHING(ncclReduce)
NOTHING(ncclReduceScatter)
NOTHING(ncclBroadcast)
NOTHING(ncclSend)
NOTHING(ncclRecv)
