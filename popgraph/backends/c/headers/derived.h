/*
 * The functions of scalar bodies that are made of those in functions.h, which stands before this.
 */
#ifndef POPGRAPH_DERIVED_H
#define POPGRAPH_DERIVED_H

/*
 * f64: at most three units in the last place from the correctly rounded result, without branches
 * or calls. Squares that overflow are those of lanes that are not chosen.
 */

POPGRAPH_INLINE f64 popgraph_asin(f64 x) { return popgraph_atan(x / sqrt((1.0 - x) * (1.0 + x))); }

/* Twice the angle of half the chord. */
POPGRAPH_INLINE f64 popgraph_acos(f64 x) { return 2.0 * popgraph_atan(sqrt((1.0 - x) / (1.0 + x))); }

/*
 * The angle of the flatter of the two slopes, counted from the half or the quarter that it is in.
 * Two infinities are as far as each other, and nowhere is ahead.
 */
POPGRAPH_INLINE f64 popgraph_atan2(f64 y, f64 x) {
    const f64 rise = fabs(y), run = fabs(x);
    const bool steep = rise > run, behind = copysign(1.0, x) < 0.0;
    const f64 shorter = steep ? run : rise, longer = steep ? rise : run;
    f64 angle = popgraph_atan(shorter == longer ? (longer > 0.0 ? 1.0 : longer) : shorter / longer);
    angle = steep ? (1.5707963267948966 - angle) + 6.123233995736766e-17 : angle;
    angle = behind ? (3.141592653589793 - angle) + 1.2246467991473532e-16 : angle;
    return x != x || y != y ? NAN : copysign(angle, y);
}

/* With u = (e^|x| - 1) / 2, which is finite where the result is. */
POPGRAPH_INLINE f64 popgraph_sinh(f64 x) {
    const f64 u = popgraph_expm1_times(fabs(x), -1);
    const f64 share = u > 1e17 ? 0.5 : u / (2.0 * u + 1.0);
    return fabs(x) < 1e-300 ? x : copysign(u + share, x);
}

POPGRAPH_INLINE f64 popgraph_cosh(f64 x) {
    const f64 half = popgraph_exp_times(fabs(x), -1);
    return half + 0.25 / half;
}

/* ln(1 + x + root), or ln(2 x) from where x + 1 is x: x^2 need not be finite there. */
POPGRAPH_INLINE f64 popgraph_area(f64 x, f64 more) {
    const bool large = x > 1e18;
    const f64 area = popgraph_log1p(large ? x : x + more);
    return area + (large ? 0.6931471805599453 : 0.0);
}

POPGRAPH_INLINE f64 popgraph_asinh(f64 x) {
    const f64 size = fabs(x), square = size * size;
    return copysign(popgraph_area(size, square / (1.0 + sqrt(square + 1.0))), x);
}

POPGRAPH_INLINE f64 popgraph_acosh(f64 x) {
    const f64 beyond = x - 1.0;
    return popgraph_area(beyond, x >= 1.0 ? sqrt(beyond * (x + 1.0)) : NAN);
}

POPGRAPH_INLINE f64 popgraph_atanh(f64 x) {
    const f64 size = fabs(x), twice = 2.0 * size;
    const f64 ratio = size < 0.5 ? twice + twice * size / (1.0 - size) : twice / (1.0 - size);
    return copysign(0.5 * popgraph_log1p(ratio), x);
}

/*
 * The angle whose sine is x for an f32, in f64: a polynomial up to a half, beyond it the angle of half
 * the chord, of which there are two. Its error of 6e-11 is nothing beside the rounding to f32.
 */
POPGRAPH_INLINE f64 popgraph_short_angle(f64 size, bool far) {
    const f64 z = far ? 0.5 * (1.0 - size) : size * size, t = far ? sqrt(z) : size;
    f64 p = 0.031085697812938955;
    p = p * z + 0.010491474898074192;
    p = p * z + 0.023634998789573862;
    p = p * z + 0.030266156879893452;
    p = p * z + 0.044647836891780174;
    p = p * z + 0.07499992038447754;
    p = p * z + 0.1666666668733406;
    return t + t * z * p;
}

POPGRAPH_INLINE f32 popgraph_asinf(f32 x) {
    const f64 size = fabs((f64)x);
    const bool far = size > 0.5;
    const f64 angle = popgraph_short_angle(size, far);
    return (f32)copysign(far ? 1.5707963267948966 - 2.0 * angle : angle, (f64)x);
}

POPGRAPH_INLINE f32 popgraph_acosf(f32 x) {
    const f64 size = fabs((f64)x);
    const bool far = size > 0.5;
    const f64 angle = copysign(popgraph_short_angle(size, far), (f64)x);
    const f64 behind = x < 0.0f ? 3.141592653589793 : 0.0;
    return (f32)(far ? behind + 2.0 * angle : 1.5707963267948966 - angle);
}

/* f32 by way of f64, which hides all errors but the last rounding. */
POPGRAPH_INLINE f32 popgraph_atan2f(f32 y, f32 x) { return (f32)popgraph_atan2((f64)y, (f64)x); }
POPGRAPH_INLINE f32 popgraph_sinhf(f32 x) { return (f32)popgraph_sinh((f64)x); }
POPGRAPH_INLINE f32 popgraph_coshf(f32 x) { return (f32)popgraph_cosh((f64)x); }
POPGRAPH_INLINE f32 popgraph_asinhf(f32 x) { return (f32)popgraph_asinh((f64)x); }
POPGRAPH_INLINE f32 popgraph_acoshf(f32 x) { return (f32)popgraph_acosh((f64)x); }
POPGRAPH_INLINE f32 popgraph_atanhf(f32 x) { return (f32)popgraph_atanh((f64)x); }

/*
 * Remainders are exact. Where the quotient is small they are x - q y without a rounding: the
 * product of an f32 and a q below 2^28 is an f64, and a quotient of f32 that is not whole is more
 * than half a unit of f64 from a whole number. Two f64 need a fused product; and their quotient may
 * be rounded up to a whole number, which is one too many. Elsewhere libm's loop finds the same.
 */
POPGRAPH_INLINE bool popgraph_is_short_divisionf(f32 x, f32 y) {
    const f64 size = fabs((f64)y);
    return fabs((f64)x) < size * 268435456.0 && size < INFINITY;
}

POPGRAPH_INLINE f32 popgraph_short_remainderf(f32 x, f32 y) {
    const f64 quotient = trunc((f64)x / (f64)y);
    return copysignf((f32)((f64)x - quotient * (f64)y), x);
}

POPGRAPH_INLINE bool popgraph_is_short_division(f64 x, f64 y) {
#if defined(__FP_FAST_FMA) || defined(__FMA__)
    const f64 size = fabs(y);
    return fabs(x) < size * 4503599627370496.0 && size < INFINITY;
#else
    (void)x;
    (void)y;
    return false;
#endif
}

POPGRAPH_INLINE f64 popgraph_short_remainder(f64 x, f64 y) {
    const f64 size = fabs(x), step = fabs(y);
    const f64 rest = fma(-trunc(size / step), step, size);
    return copysign(rest < 0.0 ? rest + step : rest, x);
}

POPGRAPH_INLINE f32 popgraph_remainderf(f32 x, f32 y) {
    return popgraph_is_short_divisionf(x, y) ? popgraph_short_remainderf(x, y) : fmodf(x, y);
}

POPGRAPH_INLINE f64 popgraph_remainder(f64 x, f64 y) {
    return popgraph_is_short_division(x, y) ? popgraph_short_remainder(x, y) : fmod(x, y);
}

/* Vectors compute what is short; lanes that are not get libm's answer. */
#define POPGRAPH_REMAINDERS(V, e, n, f, x, y) __extension__ ({ \
    union { V v; e s[n]; } from = {.v = (x)}, by = {.v = (y)}, to; \
    int away = 0; \
    for (int k = 0; k < n; k++) to.s[k] = popgraph_short_remainder##f(from.s[k], by.s[k]); \
    for (int k = 0; k < n; k++) away |= !popgraph_is_short_division##f(from.s[k], by.s[k]); \
    if (away) for (int k = 0; k < n; k++) to.s[k] = popgraph_remainder##f(from.s[k], by.s[k]); \
    to.v; \
})

/*
 * Threefry-2x32 with 20 rounds, of words in scalars or in vectors: the words l and r of a counter
 * become random ones, by a key of two.
 */
#define POPGRAPH_THREEFRY_ROUND(l, r, by) \
    (l) += (r); \
    (r) = (((r) << (by)) | ((r) >> (32 - (by)))) ^ (l)
#define POPGRAPH_THREEFRY_ROUNDS(l, r, by0, by1, by2, by3, key0, key1, number) \
    POPGRAPH_THREEFRY_ROUND(l, r, by0); \
    POPGRAPH_THREEFRY_ROUND(l, r, by1); \
    POPGRAPH_THREEFRY_ROUND(l, r, by2); \
    POPGRAPH_THREEFRY_ROUND(l, r, by3); \
    (l) += (key0); \
    (r) += (key1) + (u32)(number)
#define POPGRAPH_THREEFRY(l, r, key0, key1, key2) \
    (l) += (key0); \
    (r) += (key1); \
    POPGRAPH_THREEFRY_ROUNDS(l, r, 13, 15, 26, 6, key1, key2, 1); \
    POPGRAPH_THREEFRY_ROUNDS(l, r, 17, 29, 16, 24, key2, key0, 2); \
    POPGRAPH_THREEFRY_ROUNDS(l, r, 13, 15, 26, 6, key0, key1, 3); \
    POPGRAPH_THREEFRY_ROUNDS(l, r, 17, 29, 16, 24, key1, key2, 4); \
    POPGRAPH_THREEFRY_ROUNDS(l, r, 13, 15, 26, 6, key2, key0, 5)
#define POPGRAPH_THREEFRY_PARITY(key0, key1) ((key0) ^ (key1) ^ (u32)0x1BD11BDA)

/* A number of 64 bits stands for two words, the low one first. */
POPGRAPH_INLINE u64 popgraph_threefry(u64 key, u64 counter) {
    const u32 key0 = (u32)key, key1 = (u32)(key >> 32);
    const u32 key2 = POPGRAPH_THREEFRY_PARITY(key0, key1);
    u32 left = (u32)counter, right = (u32)(counter >> 32);
    POPGRAPH_THREEFRY(left, right, key0, key1, key2);
    return (u64)right << 32 | left;
}

#define POPGRAPH_THREEFRY_LANES(M, n, key, counter) \
    typedef u32 words __attribute__((vector_size(4 * n))); \
    const M by = (M)(key), from = (M)(counter); \
    const words key0 = __builtin_convertvector(by, words); \
    const words key1 = __builtin_convertvector(by >> 32, words); \
    const words key2 = POPGRAPH_THREEFRY_PARITY(key0, key1); \
    words left = __builtin_convertvector(from, words); \
    words right = __builtin_convertvector(from >> 32, words); \
    POPGRAPH_THREEFRY(left, right, key0, key1, key2)
#define POPGRAPH_RANDOM_FIRST_WORDS(T, M, n, key, counter) __extension__ ({ \
    POPGRAPH_THREEFRY_LANES(M, n, key, counter); \
    (T)left; \
})
#define POPGRAPH_RANDOM_WORDS(T, M, n, key, counter) __extension__ ({ \
    POPGRAPH_THREEFRY_LANES(M, n, key, counter); \
    (T)(__builtin_convertvector(right, M) << 32 | __builtin_convertvector(left, M)); \
})

#endif
