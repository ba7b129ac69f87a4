/*
 * What does generated C stand on? Names for element types, half-precision conversions and, where
 * POPGRAPH_POOL is defined, the pool of threads that runs the chunks of a kernel.
 */
#ifndef POPGRAPH_RUNTIME_H
#define POPGRAPH_RUNTIME_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Functions here rely on every operation being rounded to the type that it is written in. GCC's
 * -fexcess-precision=fast (-std=gnu11 implies it) gives that wherever the processor has such types.
 */
#if __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "PopGraph needs float arithmetic that is rounded to float (x86: -msse2 -mfpmath=sse; elsewhere -std=gnu11)"
#endif

/* Element types under the names that PopGraph uses everywhere. */
typedef float f32;
typedef double f64;
/* Halves are bits: they are computed in f32. */
typedef uint16_t f16;
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

/* Whether there is such a builtin; GCC, which could not say before its tenth version, has all. */
#if defined(__clang__)
#define POPGRAPH_HAS(builtin) __has_builtin(builtin)
#else
#define POPGRAPH_HAS(builtin) 1
#endif

/*
 * Some lanes of two vectors, counted through both, as a vector of as many; U is the unsigned type
 * of this shape. A list of lanes means the same, but GCC moves them one by one.
 */
#if defined(__clang__)
#define POPGRAPH_SHUFFLE(U, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define POPGRAPH_SHUFFLE(U, a, b, ...) __builtin_shuffle(a, b, (U){__VA_ARGS__})
#endif

/*
 * A vector in memory that several products take, in a register. GCC would load it again for each of
 * them where it takes that for cheap; but a core that multiplies two vectors in a cycle loads two.
 */
#if defined(__clang__) || !(defined(__x86_64__) || defined(__i386__))
#define POPGRAPH_KEPT(T, value) (value)
#elif defined(__AVX512F__)
#define POPGRAPH_KEPT(T, value) POPGRAPH_IN_REGISTER(T, value, "+v", 64)
#elif defined(__AVX__)
#define POPGRAPH_KEPT(T, value) POPGRAPH_IN_REGISTER(T, value, "+x", 32)
#else
#define POPGRAPH_KEPT(T, value) POPGRAPH_IN_REGISTER(T, value, "+x", 16)
#endif
#define POPGRAPH_IN_REGISTER(T, value, kind, bytes)         \
    ({                                                      \
        T kept = (value);                                   \
        if (sizeof kept <= bytes) __asm__("" : kind(kept)); \
        kept;                                               \
    })

/*
 * Halves to f32 and back, for one element or for all lanes: F is f32 or a vector of it, U the
 * unsigned type of the same shape, and halves stand in the low bits of a U. Rounds to the nearest,
 * ties to even; a NaN keeps what fits of its payload and is quiet, as machines have it. POPGRAPH_IF
 * is all ones where a is below b (both below 2^31).
 */
#define POPGRAPH_IF(a, b) (0 - (((a) - (b)) >> 31))
#define POPGRAPH_BITS(F, U, x) (((union { F number; U bits; }){.number = (x)}).bits)
#define POPGRAPH_NUMBER(F, U, x) (((union { U bits; F number; }){.bits = (x)}).number)

#define POPGRAPH_BF16_TO_F32(F, U, x) POPGRAPH_NUMBER(F, U, (x) << 16)

#define POPGRAPH_F32_TO_BF16(F, U, x) ({ \
    const U wide = POPGRAPH_BITS(F, U, x); \
    const U nan = POPGRAPH_IF(0x7f800000u, wide & 0x7fffffff); \
    const U rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16; \
    (rounded & ~nan) | (((wide >> 16) | 0x40) & nan); \
})

/* A subnormal is what its bits add to the least normal number: no product of subnormals, slow. */
#define POPGRAPH_F16_TO_F32(F, U, x) ({ \
    const U half = (x), size = half & 0x7fff, moved = (size << 13) + 0x38000000; \
    const U small = POPGRAPH_IF(size, 0x400u), nan = POPGRAPH_IF(0x7c00u, size) & 0x400000; \
    const U special = (POPGRAPH_IF(0x7bffu, size) & 0x7f800000) | nan; \
    const F least = POPGRAPH_NUMBER(F, U, moved + 0x800000) - 0x1p-14f; \
    const U bits = (POPGRAPH_BITS(F, U, least) & small) | ((moved | special) & ~small); \
    POPGRAPH_NUMBER(F, U, bits | ((half & 0x8000) << 16)); \
})

#define POPGRAPH_F32_TO_F16(F, U, x) ({ \
    const U wide = POPGRAPH_BITS(F, U, x), size = wide & 0x7fffffff; \
    const U small = POPGRAPH_IF(size, 0x38800000u); \
    const U large = POPGRAPH_IF(0x477fffffu, size); \
    const U nan = POPGRAPH_IF(0x7f800000u, size); \
    const U normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13; \
    const U least = POPGRAPH_BITS(F, U, POPGRAPH_NUMBER(F, U, size) + 0.5f) - 0x3f000000; \
    const U whole = (least & small) | (normal & ~(small | large)) | (large & 0x7c00); \
    whole | (nan & (0x200 | ((size >> 13) & 0x3ff))) | ((wide >> 16) & 0x8000); \
})

/*
 * f16 on 8 or 16 lanes, F, U and H being vectors of f32, u32 and halves: one instruction where the
 * target has it (F16C, AVX-512), which gives the same bits.
 */
#define POPGRAPH_PLAIN_F16_TO_F32(F, U, x) POPGRAPH_F16_TO_F32(F, U, __builtin_convertvector(x, U))
#define POPGRAPH_PLAIN_F32_TO_F16(F, U, H, x) \
    __builtin_convertvector(POPGRAPH_F32_TO_F16(F, U, x), H)

#if defined(__F16C__)
#if POPGRAPH_HAS(__builtin_ia32_vcvtph2ps256)
typedef short popgraph_halves_8 __attribute__((vector_size(16)));
#define POPGRAPH_F16_TO_F32_8(F, U, x) ((F)__builtin_ia32_vcvtph2ps256((popgraph_halves_8)(x)))
#else /* Clang from 20 on */
typedef _Float16 popgraph_halves_8 __attribute__((vector_size(16)));
#define POPGRAPH_F16_TO_F32_8(F, U, x) __builtin_convertvector((popgraph_halves_8)(x), F)
#endif
#define POPGRAPH_F32_TO_F16_8(F, U, H, x) ((H)__builtin_ia32_vcvtps2ph256((x), 0))
#else
#define POPGRAPH_F16_TO_F32_8 POPGRAPH_PLAIN_F16_TO_F32
#define POPGRAPH_F32_TO_F16_8 POPGRAPH_PLAIN_F32_TO_F16
#endif

#if defined(__AVX512F__)
typedef short popgraph_halves_16 __attribute__((vector_size(32)));
#define POPGRAPH_F16_TO_F32_16(F, U, x) \
    ((F)__builtin_ia32_vcvtph2ps512_mask((popgraph_halves_16)(x), (F){0}, 0xffff, 4))
#define POPGRAPH_F32_TO_F16_16(F, U, H, x) \
    ((H)__builtin_ia32_vcvtps2ph512_mask((x), 0, (popgraph_halves_16){0}, 0xffff))
#else
#define POPGRAPH_F16_TO_F32_16 POPGRAPH_PLAIN_F16_TO_F32
#define POPGRAPH_F32_TO_F16_16 POPGRAPH_PLAIN_F32_TO_F16
#endif

static inline f32 f16_to_f32(f16 x) { return POPGRAPH_F16_TO_F32(f32, u32, (u32)x); }
static inline f16 f32_to_f16(f32 x) { return (f16)POPGRAPH_F32_TO_F16(f32, u32, x); }
static inline f32 bf16_to_f32(bf16 x) { return POPGRAPH_BF16_TO_F32(f32, u32, (u32)x); }
static inline bf16 f32_to_bf16(f32 x) { return (bf16)POPGRAPH_F32_TO_BF16(f32, u32, x); }

/* Rounded to odd: a second rounding, to f16, then gives what one rounding would have given. */
static inline f32 f64_to_odd_f32(f64 x) {
    union { f32 number; u32 bits; } made = {.number = (f32)x};
    const f64 back = made.number;
    const bool odd = back == x || x != x || (made.bits & 1);
    made.bits += odd ? 0u : fabs(back) > fabs(x) ? -1u : 1u;
    return made.number;
}

/* A function of one element on all lanes of a vector. */
#define POPGRAPH_LANES(A, a, B, b, n, function, x) ({ \
    union { A v; a s[n]; } from = {.v = (x)}; \
    union { B v; b s[n]; } to; \
    for (int k = 0; k < n; k++) to.s[k] = function(from.s[k]); \
    to.v; \
})

#include "conversions.h"
#include "functions.h"
#include "derived.h"

/*
 * One memory holds elements of different types one after another, so every access may alias
 * every other: the compiler must not reason from types.
 */
#define POPGRAPH_MEMORY(type) typedef type type##_memory __attribute__((may_alias))
POPGRAPH_MEMORY(f32);
POPGRAPH_MEMORY(f64);
POPGRAPH_MEMORY(f16);
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
 * The pool. Every thread has a range of chunks of its own, always the same part of them: what it
 * wrote in one kernel is then in its own cache for the next. A range is one word: epoch (32 bits),
 * end (16), next (16). Its owner takes chunks from the front, and those who have none left from
 * the back, by compare-and-swap, so a claim can never reach into another epoch. The caller has a
 * range, too, and waits until all chunks are done, never for a thread: one that sleeps through a
 * kernel costs nothing.
 */
typedef struct {
    _Alignas(64) _Atomic u64 word;
} popgraph_range;

enum { POPGRAPH_RANGES = 1024 }; /* More threads than a machine has. */

static struct {
    popgraph_range ranges[POPGRAPH_RANGES];
    _Alignas(64) _Atomic u64 epoch;
    _Atomic i64 helpers;
    popgraph_kernel kernel;
    void *const *memory;
    i64 first;
    _Alignas(64) _Atomic i64 done;
    _Atomic i64 sleepers;
    i64 workers;
    pthread_t threads[POPGRAPH_RANGES];
    _Atomic bool leaving;
    bool fork_handled;
    pthread_mutex_t busy;
    pthread_mutex_t sleep;
    pthread_cond_t wake;
} pool = {
    .busy = PTHREAD_MUTEX_INITIALIZER,
    .sleep = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
};

enum { POPGRAPH_BATCH = 0xffff, POPGRAPH_SPINS = 4000, POPGRAPH_STACK = 4 << 20 };

static inline void popgraph_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Runs chunks of one range until there are none, from its front or from its back; how many. */
static i64 popgraph_claim_chunks(i64 range, bool own) {
    _Atomic u64 *word = &pool.ranges[range].word;
    u64 seen = atomic_load(word);
    i64 taken = 0;
    for (;;) {
        const u64 next = seen & 0xffff, end = seen >> 16 & 0xffff;
        if (next >= end) return taken;
        if (!atomic_compare_exchange_weak(word, &seen, own ? seen + 1 : seen - 0x10000)) continue;
        pool.kernel(pool.first + (i64)(own ? next : end - 1), pool.memory);
        taken++;
        seen = atomic_load(word);
    }
}

/* What there is to do for the thread of this range: its own chunks, then those of the others. */
static void popgraph_take_part(i64 range) {
    const i64 ranges = atomic_load(&pool.helpers) + 1;
    i64 taken = popgraph_claim_chunks(range, true);
    for (i64 step = 1; step < ranges; step++)
        taken += popgraph_claim_chunks((range + step) % ranges, false);
    if (taken) atomic_fetch_add(&pool.done, taken);
}

/* Whether a kernel has come that the thread of this range has not seen, and may help with. */
static inline bool popgraph_is_wanted(i64 range, u64 epoch) {
    return atomic_load(&pool.epoch) != epoch && range <= atomic_load(&pool.helpers);
}

static void *popgraph_worker(void *number) {
    const i64 range = (i64)(intptr_t)number;
    u64 epoch = 0;
    for (int spins = 0;;) {
        if (popgraph_is_wanted(range, epoch)) {
            epoch = atomic_load(&pool.epoch);
            popgraph_take_part(range);
            spins = 0;
        } else if (atomic_load(&pool.leaving)) {
            return 0;
        } else if (++spins < POPGRAPH_SPINS) {
            popgraph_pause();
        } else {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleepers, 1);
            while (!popgraph_is_wanted(range, epoch) && !atomic_load(&pool.leaving))
                pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.sleep);
            spins = 0;
        }
    }
}

/* A forked child has no workers: it starts its own when it needs them. */
static void popgraph_forget_workers(void) {
    for (i64 range = 0; range < POPGRAPH_RANGES; range++) atomic_store(&pool.ranges[range].word, 0);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.helpers, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.leaving, false);
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
    pthread_attr_t stack;
    pthread_attr_init(&stack);
    pthread_attr_setstacksize(&stack, POPGRAPH_STACK);
    while (pool.workers < wanted) {
        void *range = (void *)(intptr_t)(pool.workers + 1);
        if (pthread_create(&pool.threads[pool.workers], &stack, popgraph_worker, range)) break;
        pool.workers++;
    }
    pthread_attr_destroy(&stack);
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

/*
 * Ends the workers, so that nobody runs the code of a library that is about to go; those who serve
 * somebody stay. They start again when they are needed.
 */
static void popgraph_stop_workers(void) {
    if (pthread_mutex_trylock(&pool.busy)) return;
    pthread_mutex_lock(&pool.sleep);
    atomic_store(&pool.leaving, true);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
    while (pool.workers > 0) pthread_join(pool.threads[--pool.workers], 0);
    atomic_store(&pool.leaving, false);
    pthread_mutex_unlock(&pool.busy);
}

static void popgraph_share_batch(i64 threads, i64 first, i64 chunks) {
    const u64 epoch = atomic_load(&pool.epoch) + 1;
    pool.first = first;
    atomic_store(&pool.done, 0);
    for (i64 range = 0; range < threads; range++) {
        const u64 next = (u64)(range * chunks / threads), end = (u64)((range + 1) * chunks / threads);
        atomic_store(&pool.ranges[range].word, epoch << 32 | end << 16 | next);
    }
    atomic_store(&pool.epoch, epoch);
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    popgraph_take_part(0);
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
    if (threads > POPGRAPH_RANGES) threads = POPGRAPH_RANGES;
    if (pool.workers < threads - 1) popgraph_start_workers(threads - 1);
    pool.kernel = kernel;
    pool.memory = memory;
    atomic_store(&pool.helpers, threads - 1);
    for (i64 first = 0; first < chunks; first += POPGRAPH_BATCH) {
        const i64 left = chunks - first;
        popgraph_share_batch(threads, first, left < POPGRAPH_BATCH ? left : POPGRAPH_BATCH);
    }
    pthread_mutex_unlock(&pool.busy);
}

/*
 * The same in a turn of a loop. Alone, every other turn goes backwards: it begins with what the
 * turn before left in the caches.
 */
static inline void popgraph_share_turn(
    i64 threads, i64 chunks, i64 turn, popgraph_kernel kernel, void *const *memory) {
    if (threads < 2 && turn % 2) {
        for (i64 chunk = chunks - 1; chunk >= 0; chunk--) kernel(chunk, memory);
        return;
    }
    popgraph_share(threads, chunks, kernel, memory);
}

#endif
#endif
