/*
 * What pool.h has, for programs of which one thread computes everything: no threads, no signals,
 * and nothing of the system.
 */
#ifndef POPGRAPH_SERIAL_H
#define POPGRAPH_SERIAL_H

#include "runtime.h"

typedef void (*popgraph_kernel)(i64 chunk, void *const *memory);

static inline void popgraph_stop_workers(void) {}

/* Runs `kernel` for every chunk in 0 .. chunks. */
static inline void popgraph_share(
    i64 threads, i64 chunks, popgraph_kernel kernel, void *const *memory) {
    (void)threads;
    for (i64 chunk = 0; chunk < chunks; chunk++) kernel(chunk, memory);
}

/*
 * The same in a turn of a loop. Every other turn goes backwards: it begins with what the turn
 * before left in the caches.
 */
static inline void popgraph_share_turn(
    i64 threads, i64 chunks, i64 turn, popgraph_kernel kernel, void *const *memory) {
    if (turn % 2)
        for (i64 chunk = chunks - 1; chunk >= 0; chunk--) kernel(chunk, memory);
    else
        popgraph_share(threads, chunks, kernel, memory);
}

#endif
