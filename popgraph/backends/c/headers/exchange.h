/*
 * What do processes of one program tell each other? Whoever loads the program says how; without
 * that, a process is on its own.
 */
#ifndef POPGRAPH_EXCHANGE_H
#define POPGRAPH_EXCHANGE_H

#include "runtime.h"

/* Several objects of a library may define a variable; the linker keeps one of them. */
#if defined(_WIN32)
#define POPGRAPH_GIVEN __declspec(selectany) POPGRAPH_EXPORT
#else
#define POPGRAPH_GIVEN POPGRAPH_WEAK POPGRAPH_EXPORT
#endif

/* Begins an exchange, which `code` describes, of so many bytes into a target of so many. */
POPGRAPH_GIVEN void (*popgraph_begin)(const void *, void *, i64, i64, i64) = 0;

/* Waits until the exchange into a target is finished, if one was begun. */
POPGRAPH_GIVEN void (*popgraph_end)(void *) = 0;

static inline void popgraph_send(const void *source, void *target, i64 told, i64 made, bool when,
                                 i64 code) {
    if (when && popgraph_begin) {
        popgraph_begin(source, target, told, made, code);
    } else if (told == made) {
        if (source != target) __builtin_memcpy(target, source, (uintptr_t)made);
    } else {
        __builtin_memset(target, 0, (uintptr_t)made);
    }
}

static inline void popgraph_receive(void *source, void *target, i64 made) {
    if (popgraph_end) popgraph_end(source);
    if (source != target) __builtin_memcpy(target, source, (uintptr_t)made);
}

#endif
