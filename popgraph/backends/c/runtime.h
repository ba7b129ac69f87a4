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

/*
 * Halves to f32 and back, for one element or for all lanes: F is f32 or a vector of it, U the
 * unsigned type of the same shape, and halves stand in the low bits of a U. Rounds to the nearest,
 * ties to even; a NaN stays one. POPGRAPH_IF is all ones where a is below b (both below 2^31).
 */
#define POPGRAPH_IF(a, b) (0 - ((a) - (b) >> 31))
#define POPGRAPH_BITS(F, U, x) (((union { F number; U bits; }){.number = (x)}).bits)
#define POPGRAPH_NUMBER(F, U, x) (((union { U bits; F number; }){.bits = (x)}).number)

#define POPGRAPH_BF16_TO_F32(F, U, x) POPGRAPH_NUMBER(F, U, (x) << 16)

#define POPGRAPH_F32_TO_BF16(F, U, x) ({ \
    const U wide = POPGRAPH_BITS(F, U, x); \
    const U nan = POPGRAPH_IF(0x7f800000u, wide & 0x7fffffff); \
    const U rounded = (wide + 0x7fff + (wide >> 16 & 1)) >> 16; \
    (rounded & ~nan) | ((wide >> 16 | 0x40) & nan); \
})

/* A subnormal is what its bits add to the least normal number: no product of subnormals, slow. */
#define POPGRAPH_F16_TO_F32(F, U, x) ({ \
    const U half = (x), size = half & 0x7fff, moved = (size << 13) + 0x38000000; \
    const U small = POPGRAPH_IF(size, 0x400u), special = POPGRAPH_IF(0x7bffu, size) & 0x7f800000; \
    const F least = POPGRAPH_NUMBER(F, U, moved + 0x800000) - 0x1p-14f; \
    const U bits = (POPGRAPH_BITS(F, U, least) & small) | ((moved | special) & ~small); \
    POPGRAPH_NUMBER(F, U, bits | (half & 0x8000) << 16); \
})

#define POPGRAPH_F32_TO_F16(F, U, x) ({ \
    const U wide = POPGRAPH_BITS(F, U, x), size = wide & 0x7fffffff; \
    const U small = POPGRAPH_IF(size, 0x38800000u); \
    const U large = POPGRAPH_IF(0x477fffffu, size); \
    const U nan = POPGRAPH_IF(0x7f800000u, size); \
    const U normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13; \
    const U least = POPGRAPH_BITS(F, U, POPGRAPH_NUMBER(F, U, size) + 0.5f) - 0x3f000000; \
    const U whole = (least & small) | (normal & ~(small | large)) | (large & 0x7c00); \
    whole | (nan & (0x200 | (size >> 13 & 0x3ff))) | (wide >> 16 & 0x8000); \
})

static inline f32 f16_to_f32(f16 x) { return POPGRAPH_F16_TO_F32(f32, u32, (u32)x); }
static inline f16 f32_to_f16(f32 x) { return (f16)POPGRAPH_F32_TO_F16(f32, u32, x); }
static inline f32 bf16_to_f32(bf16 x) { return POPGRAPH_BF16_TO_F32(f32, u32, (u32)x); }
static inline bf16 f32_to_bf16(f32 x) { return (bf16)POPGRAPH_F32_TO_BF16(f32, u32, x); }

/* Rounded to odd: a second rounding, to f16, then gives what one rounding would have given. */
static inline f32 f64_to_odd_f32(f64 x) {
    union { f32 number; u32 bits; } made = {.number = (f32)x};
    const f64 back = made.number;
    const bool odd = back == x || x != x || made.bits & 1;
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
    return copysignf(size < 0.625f ? near : far, x);
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

/*
 * The same for f64, at most two units in the last place from the correctly rounded result (tan,
 * expm1 and tanh: three). erf and pow of f64 are libm's, one lane at a time.
 */
static inline f64 popgraph_from_bits(u64 bits) {
    union { u64 bits; f64 number; } made = {.bits = bits};
    return made.number;
}

static inline u64 popgraph_bits(f64 x) {
    union { f64 number; u64 bits; } made = {.number = x};
    return made.bits;
}

/* 2^exponent for the bits of a whole number, -1022 to 1023. */
static inline f64 popgraph_power_of_two_f64(u64 exponent) {
    return popgraph_from_bits((exponent + 1023) << 52);
}

/* e^r - 1 for |r| < ln 2 / 2. */
static inline f64 popgraph_exp_part(f64 r) {
    f64 p = 1.6059043836821613e-10;
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 1.984126984126984e-04;
    p = p * r + 1.388888888888889e-03;
    p = p * r + 8.333333333333333e-03;
    p = p * r + 4.1666666666666664e-02;
    p = p * r + 1.6666666666666666e-01;
    p = p * r + 0.5;
    return p * (r * r) + r;
}

#define POPGRAPH_SHIFT 6755399441055744.0 /* 1.5 * 2^52: added, it leaves whole numbers */

static inline f64 popgraph_exp(f64 x) {
    x = x > 746.0 ? 746.0 : x;
    x = x < -746.0 ? -746.0 : x;
    const f64 shifted = x * 1.4426950408889634 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 whole = popgraph_bits(shifted) - popgraph_bits(POPGRAPH_SHIFT);
    const u64 half = ((whole + 4096) >> 1) - 2048;
    const f64 r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    const f64 p = popgraph_exp_part(r) + 1.0;
    return p * popgraph_power_of_two_f64(half) * popgraph_power_of_two_f64(whole - half);
}

static inline f64 popgraph_expm1(f64 x) {
    f64 z = x > 746.0 ? 746.0 : x;
    z = z < -50.0 ? -50.0 : z;
    const f64 shifted = z * 1.4426950408889634 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 whole = popgraph_bits(shifted) - popgraph_bits(POPGRAPH_SHIFT);
    const u64 half = ((whole + 4096) >> 1) - 2048, rest = whole - half;
    const f64 r = (z - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    const f64 scale = popgraph_power_of_two_f64(half);
    const f64 p = popgraph_exp_part(r) * scale + (scale - popgraph_power_of_two_f64(-rest));
    return x == 0.0 ? x : p * popgraph_power_of_two_f64(rest);
}

/* ln(m 2^e + c), c being what m 2^e lacks, with m in [1/sqrt 2, sqrt 2); for normal numbers. */
static inline f64 popgraph_log_part(f64 x, f64 c, f64 scale) {
    const u64 moved = popgraph_bits(x) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const f64 biased = popgraph_from_bits(0x4330000000000000 | moved >> 52);
    const f64 e = biased - (4503599627370496.0 + 1023.0) - scale;
    const f64 f = popgraph_from_bits((moved & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0;
    const f64 s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
    f64 p = 1.479819860511658591e-01;
    p = p * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    p = s * (square + p * z) + (e * 1.90821492927058770002e-10 + c);
    return e * 6.93147180369123816490e-01 - ((square - p) - f);
}

static inline f64 popgraph_log(f64 x) {
    const bool small = x < 2.2250738585072014e-308;
    f64 y = popgraph_log_part(small ? x * 18014398509481984.0 : x, 0.0, small ? 54.0 : 0.0);
    y = x == 0.0 ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0 ? y : NAN;
}

static inline f64 popgraph_log1p(f64 x) {
    const f64 u = 1.0 + x;
    const f64 c = (x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x)) / u;
    f64 y = popgraph_log_part(u, c, 0.0);
    y = x == -1.0 ? -INFINITY : y;
    y = x == INFINITY || x == 0.0 ? x : y;
    return x >= -1.0 ? y : NAN;
}

static inline f64 popgraph_tanh(f64 x) {
    const f64 size = fabs(x), t = popgraph_expm1(2.0 * (size > 22.0 ? 22.0 : size));
    const bool far = size > 0.5;
    const f64 y = (far ? -2.0 : t) / (t + 2.0) + (far ? 1.0 : 0.0);
    return x != x ? x : copysign(y, x);
}

static inline f64 popgraph_atan(f64 x) {
    const f64 size = fabs(x);
    const bool large = size > 2.414213562373095, middle = size > 0.66;
    f64 t = middle ? (size - 1.0) / (size + 1.0) : size;
    t = large ? -1.0 / size : t;
    f64 base = middle ? 0.7853981633974483 : 0.0, more = middle ? 3.061616997868383e-17 : 0.0;
    base = large ? 1.5707963267948966 : base;
    more = large ? 6.123233995736766e-17 : more;
    const f64 z = t * t;
    f64 p = -8.750608600031904122785e-01;
    p = p * z - 1.615753718733365076637e+01;
    p = p * z - 7.500855792314704667340e+01;
    p = p * z - 1.228866684490136173410e+02;
    p = p * z - 6.485021904942025371773e+01;
    f64 q = z + 2.485846490142306297962e+01;
    q = q * z + 1.650270098316988542046e+02;
    q = q * z + 4.328810604912902668951e+02;
    q = q * z + 4.853903996359136964868e+02;
    q = q * z + 1.945506571482613964425e+02;
    return copysign(base + (t + (t * z * (p / q) + more)), x);
}

/* x = n pi/2 + r + tail, for |x| < POPGRAPH_NEAR: products with n are exact. */
#define POPGRAPH_NEAR 1000000.0

static inline f64 popgraph_sin_part(f64 r, f64 tail) {
    const f64 z = r * r, v = z * r;
    f64 p = 1.58969099521155010221e-10;
    p = p * z - 2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    return r - ((z * (0.5 * tail - v * p) - tail) + v * 1.66666666666666324348e-01);
}

static inline f64 popgraph_cos_part(f64 r, f64 tail) {
    const f64 z = r * r, half = 0.5 * z, w = 1.0 - half;
    f64 p = -1.13596475577881948265e-11;
    p = p * z + 2.08757232129817482790e-09;
    p = p * z - 2.75573143513906633035e-07;
    p = p * z + 2.48015872894767294178e-05;
    p = p * z - 1.38888888888741095749e-03;
    p = p * z + 4.16666666666666019037e-02;
    return w + (((1.0 - w) - half) + (z * z * p - r * tail));
}

/* The sine of x + quarters pi/2. */
static inline f64 popgraph_turned(f64 x, u64 quarters) {
    const f64 shifted = x * 0.6366197723675814 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 turn = popgraph_bits(shifted) + quarters;
    const f64 a = x - n * 1.57079632673412561417e+00, b = n * 6.07710050630396597660e-11;
    const f64 high = a - b, low = (a - high) - b - n * 2.02226624879595063154e-21;
    const f64 r = high + low, tail = (high - r) + low;
    const f64 sine = popgraph_sin_part(r, tail), cosine = popgraph_cos_part(r, tail);
    return popgraph_from_bits(popgraph_bits(turn & 1 ? cosine : sine) ^ (turn & 2) << 62);
}

static inline f64 popgraph_near_sin(f64 x) { return x == 0.0 ? x : popgraph_turned(x, 0); }
static inline f64 popgraph_near_cos(f64 x) { return popgraph_turned(x, 1); }
static inline f64 popgraph_near_tan(f64 x) {
    return x == 0.0 ? x : popgraph_turned(x, 0) / popgraph_turned(x, 1);
}

/* Vectors compute what is near; lanes that are not get libm's answer. */
#define POPGRAPH_IS_NEAR(x) (fabs(x) < POPGRAPH_NEAR)
#define POPGRAPH_NEAR_LANES(V, e, n, near, far, x) ({ \
    union { V v; e s[n]; } from = {.v = (x)}, to; \
    int away = 0; \
    for (int k = 0; k < n; k++) to.s[k] = near(from.s[k]); \
    for (int k = 0; k < n; k++) away |= !POPGRAPH_IS_NEAR(from.s[k]); \
    if (away) for (int k = 0; k < n; k++) \
        if (!POPGRAPH_IS_NEAR(from.s[k])) to.s[k] = far(from.s[k]); \
    to.v; \
})

/* f32 by way of f64, which hides all errors but the last rounding. */
static inline f32 popgraph_expm1f(f32 x) { return (f32)popgraph_expm1((f64)x); }
static inline f32 popgraph_log1pf(f32 x) { return (f32)popgraph_log1p((f64)x); }
static inline f32 popgraph_atanf(f32 x) { return (f32)popgraph_atan((f64)x); }
static inline f32 popgraph_near_sinf(f32 x) { return (f32)popgraph_near_sin((f64)x); }
static inline f32 popgraph_near_cosf(f32 x) { return (f32)popgraph_near_cos((f64)x); }
static inline f32 popgraph_near_tanf(f32 x) { return (f32)popgraph_near_tan((f64)x); }

static inline bool popgraph_is_whole(f64 x) {
    return (x + 4503599627370496.0) - 4503599627370496.0 == x;
}

static inline f32 popgraph_powf(f32 base, f32 exponent) {
    const f64 x = base, y = exponent, size = fabs(x), power = fabs(y);
    const bool whole = popgraph_is_whole(power), odd = whole && !popgraph_is_whole(0.5 * power);
    f64 z = popgraph_exp(size == 1.0 ? 0.0 : y * popgraph_log(size));
    z = odd ? copysign(z, x) : z;
    z = x < 0.0 && size < INFINITY && !whole ? NAN : z;
    z = x != x || y != y ? NAN : z;
    return x == 1.0 || y == 0.0 ? 1.0f : (f32)z;
}

static inline f64 popgraph_erf(f64 x) { return erf(x); }
static inline f64 popgraph_pow(f64 x, f64 y) { return pow(x, y); }

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

enum { POPGRAPH_BATCH = 0xffff, POPGRAPH_SPINS = 4000, POPGRAPH_STACK = 4 << 20 };

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
    pthread_attr_t stack;
    pthread_attr_init(&stack);
    pthread_attr_setstacksize(&stack, POPGRAPH_STACK);
    while (pool.workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &stack, popgraph_worker, (void *)(intptr_t)pool.workers)) break;
        pthread_detach(thread);
        pool.workers++;
    }
    pthread_attr_destroy(&stack);
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
