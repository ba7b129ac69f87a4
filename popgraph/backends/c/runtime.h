/*
 * What does generated C stand on? Names for element types, half-precision conversions, functions
 * for the lanes of vectors, and, where POPGRAPH_POOL is defined, the pool of threads that runs the
 * chunks of a kernel.
 */
#ifndef POPGRAPH_RUNTIME_H
#define POPGRAPH_RUNTIME_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Element types under the names that PopGraph uses everywhere. */
typedef float f32;
typedef double f64;
#ifdef __FLT16_MAX__
typedef _Float16 f16;
static inline f32 f16_to_f32(f16 x) { return (f32)x; }
static inline f16 f32_to_f16(f32 x) { return (f16)x; }
#endif
typedef uint16_t bf16;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct __attribute__((may_alias)) { f32 real, imaginary; } c64;
typedef struct __attribute__((may_alias)) { f64 real, imaginary; } c128;

static inline f32 bf16_to_f32(bf16 x) {
    union { u32 bits; f32 number; } wide = {.bits = (u32)x << 16};
    return wide.number;
}

/* Rounds to the nearest, ties to even; a NaN stays one. */
static inline bf16 f32_to_bf16(f32 x) {
    union { f32 number; u32 bits; } wide = {.number = x};
    if (x != x) return (bf16)(wide.bits >> 16 | 0x40);
    return (bf16)((wide.bits + 0x7fff + (wide.bits >> 16 & 1)) >> 16);
}

/*
 * Functions of one f32, without branches or calls, so that a loop over the lanes of a vector
 * becomes vector instructions: 5 to 20 times as fast as libm, and at most one unit in the last
 * place from the correctly rounded result. NaN stays NaN; infinities and subnormals come out right.
 */
static inline f32 popgraph_power_of_two(i32 exponent) {
    union { i32 bits; f32 number; } made = {.bits = (exponent + 127) << 23};
    return made.number;
}

/* 2^n e^r with |r| < ln 2 / 2; the power is applied in two halves, which reach all of f32. */
static inline f32 popgraph_expf(f32 x) {
    x = x > 104.0f ? 104.0f : x;
    x = x < -104.0f ? -104.0f : x;
    union { f32 number; i32 bits; } shifted = {.number = x * 1.44269504f + 12582912.0f};
    const f32 n = shifted.number - 12582912.0f;
    const i32 whole = shifted.bits - 0x4b400000, half = whole >> 1;
    const f32 r = (x - n * 0.693145751953125f) - n * 1.42860682e-6f;
    f32 p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345191e-3f;
    p = p * r + 4.16657959e-2f;
    p = p * r + 1.66666655e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * popgraph_power_of_two(half) * popgraph_power_of_two(whole - half);
}

/* ln(m 2^e) with m in [1/sqrt 2, sqrt 2); subnormals are scaled up first. */
static inline f32 popgraph_logf(f32 x) {
    const f32 scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    union { f32 number; i32 bits; } split = {.number = scaled};
    i32 exponent = (split.bits - 0x3f3504f3) >> 23;
    split.bits -= exponent << 23;
    const f32 e = (f32)(x < 1.17549435e-38f ? exponent - 23 : exponent);
    const f32 m = split.number - 1.0f, square = m * m;
    f32 p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * square - 2.12194440e-4f * e - 0.5f * square;
    f32 y = m + p + 0.693359375f * e;
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}

static inline f32 popgraph_tanhf(f32 x) {
    const f32 size = fabsf(x), square = x * x;
    const f32 far = 1.0f - 2.0f / (popgraph_expf(2.0f * size) + 1.0f);
    f32 p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const f32 near = p * square * x + x;
    return size < 0.625f ? near : copysignf(far, x);
}

static inline f32 popgraph_erff(f32 x) {
    const f32 size = fabsf(x), square = x * x;
    f32 p = (-1.7285347e-5f * size + 3.83197126e-4f) * square;
    p = p + (-3.88396438e-3f * size + 2.42546219e-2f);
    p = p * size - 1.06777877e-1f;
    p = p * size - 6.34846687e-1f;
    p = p * size - 1.28717512e-1f;
    p = p * size - size;
    const f32 far = 1.0f - popgraph_expf(p);
    f32 q = -5.96761703e-4f;
    q = q * square + 4.99119423e-3f;
    q = q * square - 2.67681349e-2f;
    q = q * square + 1.12819925e-1f;
    q = q * square - 3.76125336e-1f;
    q = q * square + 1.28379166e-1f;
    const f32 near = q * x + x;
    return size > 0.927734375f ? copysignf(far, x) : near;
}

static inline f64 popgraph_exp(f64 x) { return exp(x); }
static inline f64 popgraph_log(f64 x) { return log(x); }
static inline f64 popgraph_tanh(f64 x) { return tanh(x); }
static inline f64 popgraph_erf(f64 x) { return erf(x); }

/*
 * One memory holds elements of different types one after another, so every access may alias
 * every other: the compiler must not reason from types.
 */
#define POPGRAPH_MEMORY(type) typedef type type##_memory __attribute__((may_alias))
POPGRAPH_MEMORY(f32);
POPGRAPH_MEMORY(f64);
#ifdef __FLT16_MAX__
POPGRAPH_MEMORY(f16);
#endif
POPGRAPH_MEMORY(bf16);
POPGRAPH_MEMORY(i8);
POPGRAPH_MEMORY(i16);
POPGRAPH_MEMORY(i32);
POPGRAPH_MEMORY(i64);
POPGRAPH_MEMORY(u8);
POPGRAPH_MEMORY(u16);
POPGRAPH_MEMORY(u32);
POPGRAPH_MEMORY(u64);
typedef c64 c64_memory;
typedef c128 c128_memory;

#ifdef POPGRAPH_POOL

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

typedef void (*popgraph_kernel)(i64 chunk, void *const *memory);

/*
 * The pool. `ticket` says it all in one word: epoch (32 bits), number of chunks (16), next chunk
 * (16). Whoever moves `next` on by compare-and-swap owns that chunk, so a claim can never reach
 * into another epoch. The caller claims chunks, too, and waits until all chunks are done, never
 * for a thread: one that sleeps through a kernel costs nothing.
 */
static struct {
    _Atomic u64 ticket;
    _Atomic i64 done;
    popgraph_kernel kernel;
    void *const *memory;
    i64 first;
    _Atomic i64 helpers;
    _Atomic i64 sleepers;
    i64 workers;
    bool fork_handled;
    pthread_mutex_t busy;
    pthread_mutex_t sleep;
    pthread_cond_t wake;
} pool = {
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .sleep = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
};

enum { POPGRAPH_BATCH = 0xffff, POPGRAPH_SPINS = 4000 };

static inline void popgraph_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool popgraph_work_left(u64 ticket) {
    return (ticket & 0xffff) < (ticket >> 16 & 0xffff);
}

static void popgraph_claim_chunks(void) {
    u64 ticket = atomic_load(&pool.ticket);
    while (popgraph_work_left(ticket)) {
        if (!atomic_compare_exchange_weak(&pool.ticket, &ticket, ticket + 1)) continue;
        pool.kernel(pool.first + (i64)(ticket & 0xffff), pool.memory);
        atomic_fetch_add(&pool.done, 1);
        ticket = atomic_load(&pool.ticket);
    }
}

static void *popgraph_worker(void *number) {
    int spins = 0;
    for (;;) {
        if ((i64)(intptr_t)number < atomic_load(&pool.helpers)
            && popgraph_work_left(atomic_load(&pool.ticket))) {
            popgraph_claim_chunks();
            spins = 0;
        } else if (++spins < POPGRAPH_SPINS) {
            popgraph_pause();
        } else {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleepers, 1);
            while (!((i64)(intptr_t)number < atomic_load(&pool.helpers)
                     && popgraph_work_left(atomic_load(&pool.ticket))))
                pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.sleep);
            spins = 0;
        }
    }
    return 0;
}

/* A forked child has no workers: it starts its own when it needs them. */
static void popgraph_forget_workers(void) {
    atomic_store(&pool.ticket, 0);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.helpers, 0);
    atomic_store(&pool.sleepers, 0);
    pool.workers = 0;
    pthread_mutex_init(&pool.busy, 0);
    pthread_mutex_init(&pool.sleep, 0);
    pthread_cond_init(&pool.wake, 0);
}

static void popgraph_start_workers(i64 wanted) {
    if (!pool.fork_handled) pthread_atfork(0, 0, popgraph_forget_workers);
    pool.fork_handled = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, 0, popgraph_worker, (void *)(intptr_t)pool.workers)) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

static void popgraph_share_batch(i64 first, i64 chunks) {
    pool.first = first;
    atomic_store(&pool.done, 0);
    u64 epoch = (atomic_load(&pool.ticket) >> 32) + 1;
    atomic_store(&pool.ticket, epoch << 32 | (u64)chunks << 16);
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    popgraph_claim_chunks();
    for (int spins = 0; atomic_load(&pool.done) < chunks;) {
        popgraph_pause();
        if (++spins >= POPGRAPH_SPINS) sched_yield();
    }
}

/* Runs `kernel` for every chunk in 0 .. chunks; alone when the pool serves somebody else. */
static void popgraph_share(i64 threads, i64 chunks, popgraph_kernel kernel, void *const *memory) {
    if (threads < 2 || pthread_mutex_trylock(&pool.busy)) {
        for (i64 chunk = 0; chunk < chunks; chunk++) kernel(chunk, memory);
        return;
    }
    if (pool.workers < threads - 1) popgraph_start_workers(threads - 1);
    pool.kernel = kernel;
    pool.memory = memory;
    atomic_store(&pool.helpers, threads - 1);
    for (i64 first = 0; first < chunks; first += POPGRAPH_BATCH)
        popgraph_share_batch(first, chunks - first < POPGRAPH_BATCH ? chunks - first : POPGRAPH_BATCH);
    pthread_mutex_unlock(&pool.busy);
}

#endif
#endif
