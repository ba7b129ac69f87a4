/*
 * The pool of threads that runs the chunks of a kernel. A program includes it once; programs of
 * which one thread computes everything include serial.h instead, and need no system below them.
 */
#ifndef POPGRAPH_POOL_H
#define POPGRAPH_POOL_H

#include "runtime.h"

#include <stdatomic.h>

typedef void (*popgraph_kernel)(i64 chunk, void *const *memory);

enum { POPGRAPH_STACK = 4 << 20 };

/* Runs chunks on the thread of this range until the pool ends. */
static void popgraph_work(i64 range);

/* Locks, signals, threads and the clock of the system: Win32, WebAssembly, else POSIX. */
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN /* Without it, headers of COM define `small`, `near` and `interface`. */
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>

typedef SRWLOCK popgraph_lock;
typedef CONDITION_VARIABLE popgraph_signal;
typedef HANDLE popgraph_thread;
#define POPGRAPH_UNLOCKED SRWLOCK_INIT
#define POPGRAPH_SILENT CONDITION_VARIABLE_INIT

static inline void popgraph_acquire(popgraph_lock *lock) { AcquireSRWLockExclusive(lock); }
static inline bool popgraph_try(popgraph_lock *lock) { return TryAcquireSRWLockExclusive(lock); }
static inline void popgraph_release(popgraph_lock *lock) { ReleaseSRWLockExclusive(lock); }
static inline void popgraph_wake(popgraph_signal *signal) { WakeAllConditionVariable(signal); }
static inline void popgraph_yield(void) { SwitchToThread(); }
static inline void popgraph_await(popgraph_signal *signal, popgraph_lock *lock) {
    SleepConditionVariableSRW(signal, lock, INFINITE, 0);
}

/* Nanoseconds of a clock that never goes back. */
static inline i64 popgraph_now(void) {
    LARGE_INTEGER ticks, a_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&a_second);
    return (i64)(1e9 * (f64)ticks.QuadPart / (f64)a_second.QuadPart);
}

static DWORD WINAPI popgraph_thread_main(void *range) {
    popgraph_work((i64)(intptr_t)range);
    return 0;
}

static bool popgraph_start(popgraph_thread *thread, i64 range) {
    const DWORD flags = STACK_SIZE_PARAM_IS_A_RESERVATION;
    void *number = (void *)(intptr_t)range;
    *thread = CreateThread(0, POPGRAPH_STACK, popgraph_thread_main, number, flags, 0);
    return *thread != 0;
}

static void popgraph_join(popgraph_thread thread) {
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}

#elif defined(__wasm__) && !defined(_REENTRANT)
/*
 * In a browser. The page's thread must not wait: it never does but for the short time in which a
 * worker holds a lock. JavaScript starts the workers, each an instance of this module with the same
 * memory, sets their stacks and calls `work`. Without the instructions for threads, there are none.
 */
typedef struct {
    _Atomic int taken;
} popgraph_lock;
typedef struct {
    _Atomic int wakes;
} popgraph_signal;
typedef int popgraph_thread;
#define POPGRAPH_UNLOCKED {0}
#define POPGRAPH_SILENT {0}

static inline bool popgraph_try(popgraph_lock *lock) { return !atomic_exchange(&lock->taken, 1); }
static inline void popgraph_acquire(popgraph_lock *lock) { while (!popgraph_try(lock)) {} }
static inline void popgraph_release(popgraph_lock *lock) { atomic_store(&lock->taken, 0); }
static inline void popgraph_yield(void) {}
static inline void popgraph_join(popgraph_thread thread) { (void)thread; }

#if defined(__wasm_atomics__)
static inline void popgraph_wake(popgraph_signal *signal) {
    atomic_fetch_add(&signal->wakes, 1);
    __builtin_wasm_memory_atomic_notify((int *)&signal->wakes, ~0u);
}
/* A wake between the release and the wait changes the number, so that the wait ends at once. */
static inline void popgraph_await(popgraph_signal *signal, popgraph_lock *lock) {
    const int seen = atomic_load(&signal->wakes);
    popgraph_release(lock);
    __builtin_wasm_memory_atomic_wait32((int *)&signal->wakes, seen, -1);
    popgraph_acquire(lock);
}
static inline bool popgraph_start(popgraph_thread *thread, i64 range) {
    *thread = (int)range;
    return true;
}

__attribute__((export_name("stack"))) void popgraph_set_stack(void *end) {
    __asm__ volatile(
        ".globaltype __stack_pointer, i32\n"
        "local.get %0\n"
        "global.set __stack_pointer" : : "r"(end));
}
__attribute__((export_name("work"))) void popgraph_work_on(int range) { popgraph_work(range); }
#else
static inline void popgraph_wake(popgraph_signal *signal) { (void)signal; }
static inline void popgraph_await(popgraph_signal *signal, popgraph_lock *lock) {
    (void)signal, (void)lock;
}
static inline bool popgraph_start(popgraph_thread *thread, i64 range) {
    (void)thread, (void)range;
    return false;
}
#endif

#else
#define POPGRAPH_FORKS
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

typedef pthread_mutex_t popgraph_lock;
typedef pthread_cond_t popgraph_signal;
typedef pthread_t popgraph_thread;
#define POPGRAPH_UNLOCKED PTHREAD_MUTEX_INITIALIZER
#define POPGRAPH_SILENT PTHREAD_COND_INITIALIZER

static inline void popgraph_acquire(popgraph_lock *lock) { pthread_mutex_lock(lock); }
static inline bool popgraph_try(popgraph_lock *lock) { return !pthread_mutex_trylock(lock); }
static inline void popgraph_release(popgraph_lock *lock) { pthread_mutex_unlock(lock); }
static inline void popgraph_wake(popgraph_signal *signal) { pthread_cond_broadcast(signal); }
static inline void popgraph_yield(void) { sched_yield(); }
static inline void popgraph_await(popgraph_signal *signal, popgraph_lock *lock) {
    pthread_cond_wait(signal, lock);
}

static inline i64 popgraph_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (i64)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *popgraph_thread_main(void *range) {
    popgraph_work((i64)(intptr_t)range);
    return 0;
}

/* Starts a thread that gets no signals of the process. */
static bool popgraph_start(popgraph_thread *thread, i64 range) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t stack;
    pthread_attr_init(&stack);
    pthread_attr_setstacksize(&stack, POPGRAPH_STACK);
    void *number = (void *)(intptr_t)range;
    const bool started = !pthread_create(thread, &stack, popgraph_thread_main, number);
    pthread_attr_destroy(&stack);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return started;
}

static void popgraph_join(popgraph_thread thread) { pthread_join(thread, 0); }
#endif

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
    popgraph_thread threads[POPGRAPH_RANGES];
    _Atomic bool leaving;
    bool fork_handled;
    popgraph_lock busy;
    popgraph_lock sleep;
    popgraph_signal wake;
} pool = {
    .busy = POPGRAPH_UNLOCKED,
    .sleep = POPGRAPH_UNLOCKED,
    .wake = POPGRAPH_SILENT,
};

enum { POPGRAPH_BATCH = 0xffff, POPGRAPH_SPINS = 4000 };

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

static void popgraph_work(i64 range) {
    u64 epoch = 0;
    for (int spins = 0;;) {
        if (popgraph_is_wanted(range, epoch)) {
            epoch = atomic_load(&pool.epoch);
            popgraph_take_part(range);
            spins = 0;
        } else if (atomic_load(&pool.leaving)) {
            return;
        } else if (++spins < POPGRAPH_SPINS) {
            popgraph_pause();
        } else {
            popgraph_acquire(&pool.sleep);
            atomic_fetch_add(&pool.sleepers, 1);
            while (!popgraph_is_wanted(range, epoch) && !atomic_load(&pool.leaving))
                popgraph_await(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleepers, 1);
            popgraph_release(&pool.sleep);
            spins = 0;
        }
    }
}

#if defined(POPGRAPH_FORKS)
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
#endif

static void popgraph_start_workers(i64 wanted) {
#if defined(POPGRAPH_FORKS)
    if (!pool.fork_handled) pthread_atfork(0, 0, popgraph_forget_workers);
    pool.fork_handled = true;
#endif
    while (pool.workers < wanted && popgraph_start(&pool.threads[pool.workers], pool.workers + 1))
        pool.workers++;
}

/*
 * Ends the workers, so that nobody runs the code of a library that is about to go; those who serve
 * somebody stay. They start again when they are needed.
 */
static void popgraph_stop_workers(void) {
    if (!popgraph_try(&pool.busy)) return;
    popgraph_acquire(&pool.sleep);
    atomic_store(&pool.leaving, true);
    popgraph_wake(&pool.wake);
    popgraph_release(&pool.sleep);
    while (pool.workers > 0) popgraph_join(pool.threads[--pool.workers]);
    atomic_store(&pool.leaving, false);
    popgraph_release(&pool.busy);
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
        popgraph_acquire(&pool.sleep);
        popgraph_wake(&pool.wake);
        popgraph_release(&pool.sleep);
    }
    popgraph_take_part(0);
    for (int spins = 0; atomic_load(&pool.done) < chunks;) {
        popgraph_pause();
        if (++spins >= POPGRAPH_SPINS) popgraph_yield();
    }
}

/* Runs `kernel` for every chunk in 0 .. chunks; alone when the pool serves somebody else. */
static void popgraph_share(i64 threads, i64 chunks, popgraph_kernel kernel, void *const *memory) {
    if (threads < 2 || !popgraph_try(&pool.busy)) {
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
    popgraph_release(&pool.busy);
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
