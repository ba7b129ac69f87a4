/*
 * The functions of scalar bodies that are computed from scratch; derived.h has those made of them.
 * runtime.h, which has the types, includes this.
 */
#ifndef POPGRAPH_FUNCTIONS_H
#define POPGRAPH_FUNCTIONS_H

/*
 * Functions of one f32, without branches or calls, so that a loop over the lanes of a vector
 * becomes vector instructions: 5 to 20 times as fast as libm, and at most one unit in the last
 * place from the correctly rounded result. NaN stays NaN; infinities and subnormals come out right.
 */

/* s e^r for |r| < ln 2 / 2 and s a power of two, of a number or a vector. */
#define POPGRAPH_EXP_TIMES(s, r) \
    (((((((s) * 1.38144672e-3f * (r) + (s) * 8.36878084e-3f) * (r) + (s) * 4.16683927e-2f) * (r) \
        + (s) * 1.66665196e-1f) * (r) + (s) * 4.99999940e-1f) * (r) + (s)) * (r) + (s))
#define POPGRAPH_EXP_PART(r) POPGRAPH_EXP_TIMES(1.0f, r)

POPGRAPH_INLINE f32 popgraph_expf_part(f32 r) { return POPGRAPH_EXP_PART(r); }

/*
 * 2^n e^r with |r| < ln 2 / 2. The last bits of what is rounded to a whole number hold n + 254: the
 * power is applied in two halves, which reach all of f32, and each half is moved to its place with
 * 127 added already. Large x need no limit but that of n: their r makes the polynomial infinite.
 */
POPGRAPH_INLINE f32 popgraph_expf(f32 x) {
    x = x < -104.0f ? -104.0f : x;
    union { f32 number; i32 bits; } whole = {.number = x * 1.44269504f + 12583166.0f};
    whole.bits = whole.bits > 0x4b400196 ? 0x4b400196 : whole.bits;
    const f32 n = whole.number - 12583166.0f;
    const f32 r = (x - n * 0.693145751953125f) - n * 1.42860682e-6f;
    const u32 half = (u32)whole.bits >> 1;
    const union { u32 bits; f32 number; } one = {.bits = half << 23};
    const union { u32 bits; f32 number; } other = {.bits = ((u32)whole.bits - half) << 23};
    return popgraph_expf_part(r) * one.number * other.number;
}

/*
 * The same on the lanes of vectors V. AVX-512 has an instruction that multiplies by any power of two,
 * with one rounding: it gives the same bits.
 */
#define POPGRAPH_EXP(V, e, n, each, x) __extension__ ({ \
    union { V v; e s[n]; } from = {.v = (x)}, to; \
    for (int k = 0; k < n; k++) to.s[k] = each(from.s[k]); \
    to.v; \
})
#if defined(__AVX512F__)
typedef f32 popgraph_f32x16 __attribute__((vector_size(64)));
typedef u32 popgraph_u32x16 __attribute__((vector_size(64)));

POPGRAPH_INLINE popgraph_f32x16 popgraph_exp_on_16(popgraph_f32x16 x) {
    typedef popgraph_f32x16 V;
    x = POPGRAPH_GREATER_F32_16(V, popgraph_u32x16, (V){0} - 104.0f, x);
    x = POPGRAPH_LESS_F32_16(V, popgraph_u32x16, (V){0} + 89.0f, x);
    const V n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const V r = (x - n * 0.693145751953125f) - n * 1.42860682e-6f;
    const V p = POPGRAPH_EXP_PART(r);
    return (V)__builtin_ia32_scalefps512_mask(p, n, p, (unsigned short)-1, 4);
}

#define POPGRAPH_EXP_F32_16(V, e, n, each, x) ((V)popgraph_exp_on_16(x))
#else
#define POPGRAPH_EXP_F32_16 POPGRAPH_EXP
#endif

/*
 * The same bits for x <= 40, half of the range of powers: 2^(n + 64) is normal down to the least
 * result, and the factors of the polynomial hold 2^-64. 14 instructions of AVX2 instead of 21.
 */
#define POPGRAPH_EXP_NONPOSITIVE_F32(V, e, lanes, M, greater, x) __extension__ ({ \
    const V limited = greater(V, M, (V){0} - 104.0f, x); \
    const V whole = limited * 1.44269504f + 12583103.0f, n = whole - 12583103.0f; \
    const V r = (limited - n * 0.693145751953125f) - n * 1.42860682e-6f; \
    POPGRAPH_EXP_TIMES(0x1p-64f, r) * (V)((M)whole << 23); \
})
#define POPGRAPH_EXP_NONPOSITIVE_F64(V, e, n, M, greater, x) POPGRAPH_EXP(V, e, n, popgraph_exp, x)

/*
 * e^x where nobody wants to know how small it is below x = -20, for x with a minus sign: its bits are
 * then compared as integers, whose minimum is one instruction. A choice of floats takes two, and GCC
 * computes both sides of it in branches.
 */
POPGRAPH_INLINE f32 popgraph_expf_below_zero(f32 x) {
    union { f32 number; i32 bits; } limited = {.number = x};
    limited.bits = limited.bits > (i32)0xc1a00000 ? (i32)0xc1a00000 : limited.bits;
    x = limited.number;
    const union { f32 number; u32 bits; } whole = {.number = x * 1.44269504f + 12583039.0f};
    const f32 r = x - (whole.number - 12583039.0f) * 0.693147182f;
    const union { u32 bits; f32 number; } power = {.bits = whole.bits << 23};
    return popgraph_expf_part(r) * power.number;
}

/* ln(2^-scale x) - c for normal numbers x = m 2^e, with m in [1/sqrt 2, sqrt 2). */
POPGRAPH_INLINE f32 popgraph_logf_part(f32 x, f32 c, i32 scale) {
    union { f32 number; u32 bits; } split = {.number = x};
    const i32 exponent = (i32)(split.bits - 0x3f3504f3) >> 23;
    split.bits -= (u32)exponent << 23;
    const f32 e = (f32)(exponent - scale);
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
    p = p * m * square - 2.12194440e-4f * e - 0.5f * square - c;
    return m + p + 0.693359375f * e;
}

/* Subnormals are scaled up first. */
POPGRAPH_INLINE f32 popgraph_logf(f32 x) {
    const bool small = x < 1.17549435e-38f;
    f32 y = popgraph_logf_part(small ? x * 8388608.0f : x, 0.0f, small ? 23 : 0);
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}

/* ln(u) and what u = 1 + x, as it is rounded, lacks. */
POPGRAPH_INLINE f32 popgraph_log1pf(f32 x) {
    const f32 u = 1.0f + x;
    const f32 more = (x < 1.0f ? (u - 1.0f) - x : (u - x) - 1.0f) / u;
    f32 y = popgraph_logf_part(u, more, 0);
    y = x == -1.0f ? -INFINITY : y;
    y = x == INFINITY || x == 0.0f ? x : y;
    return x >= -1.0f ? y : NAN;
}

POPGRAPH_INLINE f32 popgraph_tanhf(f32 x) {
    const f32 size = fabsf(x), square = x * x;
    const f32 small = popgraph_expf_below_zero(-2.0f * size);
    const f32 far = 1.0f - 2.0f * small / (1.0f + small);
    f32 p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const f32 near = p * square * x + x;
    /* NaN is near, as its sign bit may not be set above. */
    return copysignf(size >= 0.625f ? far : near, x);
}

POPGRAPH_INLINE f32 popgraph_erff(f32 x) {
    const f32 size = fabsf(x), square = x * x;
    f32 p = (-1.7285347e-5f * size + 3.83197126e-4f) * square;
    p = p + (-3.88396438e-3f * size + 2.42546219e-2f);
    p = p * size - 1.06777877e-1f;
    p = p * size - 6.34846687e-1f;
    p = p * size - 1.28717512e-1f;
    p = p * size - size;
    const f32 far = 1.0f - popgraph_expf_below_zero(p);
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
POPGRAPH_INLINE f64 popgraph_from_bits(u64 bits) {
    union { u64 bits; f64 number; } made = {.bits = bits};
    return made.number;
}

POPGRAPH_INLINE u64 popgraph_bits(f64 x) {
    union { f64 number; u64 bits; } made = {.number = x};
    return made.bits;
}

/* 2^exponent for the bits of a whole number, -1022 to 1023. */
POPGRAPH_INLINE f64 popgraph_power_of_two_f64(u64 exponent) {
    return popgraph_from_bits((exponent + 1023) << 52);
}

/* e^r - 1 for |r| < ln 2 / 2. */
POPGRAPH_INLINE f64 popgraph_exp_part(f64 r) {
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

/* 2^shift e^x: what overflows only without the power is finite. */
POPGRAPH_INLINE f64 popgraph_exp_times(f64 x, u64 shift) {
    x = x > 746.0 ? 746.0 : x;
    x = x < -746.0 ? -746.0 : x;
    const f64 shifted = x * 1.4426950408889634 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 whole = popgraph_bits(shifted) - popgraph_bits(POPGRAPH_SHIFT) + shift;
    const u64 half = ((whole + 4096) >> 1) - 2048;
    const f64 r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    const f64 p = popgraph_exp_part(r) + 1.0;
    return p * popgraph_power_of_two_f64(half) * popgraph_power_of_two_f64(whole - half);
}

POPGRAPH_INLINE f64 popgraph_exp(f64 x) { return popgraph_exp_times(x, 0); }

/* 2^shift (e^x - 1), in the same way. */
POPGRAPH_INLINE f64 popgraph_expm1_times(f64 x, u64 shift) {
    f64 z = x > 746.0 ? 746.0 : x;
    z = z < -50.0 ? -50.0 : z;
    const f64 shifted = z * 1.4426950408889634 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 whole = popgraph_bits(shifted) - popgraph_bits(POPGRAPH_SHIFT);
    const u64 half = ((whole + 4096) >> 1) - 2048, rest = whole - half;
    const f64 r = (z - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    const f64 scale = popgraph_power_of_two_f64(half);
    const f64 p = popgraph_exp_part(r) * scale + (scale - popgraph_power_of_two_f64(-rest));
    return x == 0.0 ? x : p * popgraph_power_of_two_f64(rest + shift);
}

POPGRAPH_INLINE f64 popgraph_expm1(f64 x) { return popgraph_expm1_times(x, 0); }

/* ln(m 2^e + c), c being what m 2^e lacks, with m in [1/sqrt 2, sqrt 2); for normal numbers. */
POPGRAPH_INLINE f64 popgraph_log_part(f64 x, f64 c, f64 scale) {
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

POPGRAPH_INLINE f64 popgraph_log(f64 x) {
    const bool small = x < 2.2250738585072014e-308;
    f64 y = popgraph_log_part(small ? x * 18014398509481984.0 : x, 0.0, small ? 54.0 : 0.0);
    y = x == 0.0 ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0 ? y : NAN;
}

POPGRAPH_INLINE f64 popgraph_log1p(f64 x) {
    const f64 u = 1.0 + x;
    const f64 c = (x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x)) / u;
    f64 y = popgraph_log_part(u, c, 0.0);
    y = x == -1.0 ? -INFINITY : y;
    y = x == INFINITY || x == 0.0 ? x : y;
    return x >= -1.0 ? y : NAN;
}

POPGRAPH_INLINE f64 popgraph_tanh(f64 x) {
    const f64 size = fabs(x), t = popgraph_expm1(2.0 * (size > 22.0 ? 22.0 : size));
    const bool far = size > 0.5;
    const f64 y = (far ? -2.0 : t) / (t + 2.0) + (far ? 1.0 : 0.0);
    return x != x ? x : copysign(y, x);
}

POPGRAPH_INLINE f64 popgraph_atan(f64 x) {
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

POPGRAPH_INLINE f64 popgraph_sin_part(f64 r, f64 tail) {
    const f64 z = r * r, v = z * r;
    f64 p = 1.58969099521155010221e-10;
    p = p * z - 2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    return r - ((z * (0.5 * tail - v * p) - tail) + v * 1.66666666666666324348e-01);
}

POPGRAPH_INLINE f64 popgraph_cos_part(f64 r, f64 tail) {
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
POPGRAPH_INLINE f64 popgraph_turned(f64 x, u64 quarters) {
    const f64 shifted = x * 0.6366197723675814 + POPGRAPH_SHIFT, n = shifted - POPGRAPH_SHIFT;
    const u64 turn = popgraph_bits(shifted) + quarters;
    const f64 a = x - n * 1.57079632673412561417e+00, b = n * 6.07710050630396597660e-11;
    const f64 high = a - b, low = (a - high) - b - n * 2.02226624879595063154e-21;
    const f64 r = high + low, tail = (high - r) + low;
    const f64 sine = popgraph_sin_part(r, tail), cosine = popgraph_cos_part(r, tail);
    return popgraph_from_bits(popgraph_bits(turn & 1 ? cosine : sine) ^ (turn & 2) << 62);
}

POPGRAPH_INLINE f64 popgraph_near_sin(f64 x) { return x == 0.0 ? x : popgraph_turned(x, 0); }
POPGRAPH_INLINE f64 popgraph_near_cos(f64 x) { return popgraph_turned(x, 1); }
POPGRAPH_INLINE f64 popgraph_near_tan(f64 x) {
    return x == 0.0 ? x : popgraph_turned(x, 0) / popgraph_turned(x, 1);
}

/* Vectors compute what is near; lanes that are not get libm's answer. */
#define POPGRAPH_IS_NEAR(x) (fabs(x) < POPGRAPH_NEAR)
#define POPGRAPH_NEAR_LANES(V, e, n, near, far, x) __extension__ ({ \
    union { V v; e s[n]; } from = {.v = (x)}, to; \
    int away = 0; \
    for (int k = 0; k < n; k++) to.s[k] = near(from.s[k]); \
    for (int k = 0; k < n; k++) away |= !POPGRAPH_IS_NEAR(from.s[k]); \
    if (away) for (int k = 0; k < n; k++) \
        if (!POPGRAPH_IS_NEAR(from.s[k])) to.s[k] = far(from.s[k]); \
    to.v; \
})

/*
 * The larger or smaller lanes, NaN where either is. Each lane is as the machine's own instruction has
 * it: y > x ? y : x is x if one of them is NaN, so that only the NaNs of y are put in afterwards. They
 * do not depend on x, which in a reduction is what the last step gave. Of two lanes GCC makes no
 * vector in this way.
 */
#if defined(__AVX512F__) && !defined(__clang__)
/* GCC turns a choice of each lane into one masked move, and these masks of vectors into four. */
#define POPGRAPH_NANS(V, e, n, M, y, z) __extension__ ({ \
    union { V v; e s[n]; } only = {.v = (y)}, with = {.v = (z)}; \
    for (int k = 0; k < n; k++) with.s[k] = only.s[k] != only.s[k] ? only.s[k] : with.s[k]; \
    with.v; \
})
#elif defined(__AVX512F__)
#define POPGRAPH_NANS(V, e, n, M, y, z) __extension__ ({ \
    const M nan = (M)((y) != (y)); \
    (V)(((M)(y) & nan) | ((M)(z) & ~nan)); \
})
#else
#define POPGRAPH_NANS(V, e, n, M, y, z) ((V)((M)(z) | (M)((y) != (y))))
#endif
#define POPGRAPH_EXTREMES(V, e, n, M, beyond, x, y) __extension__ ({ \
    union { V v; e s[n]; } from = {.v = (x)}, by = {.v = (y)}, to; \
    if (n < 4) for (int k = 0; k < n; k++) to.s[k] = \
        from.s[k] beyond##= by.s[k] || from.s[k] != from.s[k] ? from.s[k] : by.s[k]; \
    else for (int k = 0; k < n; k++) to.s[k] = by.s[k] beyond from.s[k] ? by.s[k] : from.s[k]; \
    n < 4 ? to.v : POPGRAPH_NANS(V, e, n, M, by.v, to.v); \
})

/* f32 by way of f64, which hides all errors but the last rounding. */
POPGRAPH_INLINE f32 popgraph_expm1f(f32 x) { return (f32)popgraph_expm1((f64)x); }
POPGRAPH_INLINE f32 popgraph_atanf(f32 x) { return (f32)popgraph_atan((f64)x); }
POPGRAPH_INLINE f32 popgraph_near_sinf(f32 x) { return (f32)popgraph_near_sin((f64)x); }
POPGRAPH_INLINE f32 popgraph_near_cosf(f32 x) { return (f32)popgraph_near_cos((f64)x); }
POPGRAPH_INLINE f32 popgraph_near_tanf(f32 x) { return (f32)popgraph_near_tan((f64)x); }

/* What is not computed with twice the digits is found out in f32, where vectors have more lanes. */
POPGRAPH_INLINE f32 popgraph_powf(f32 x, f32 y) {
    const f32 size = fabsf(x), power = fabsf(y), half = 0.5f * power;
    const bool whole = truncf(power) == power, odd = whole && truncf(half) != half;
    f64 logarithm = popgraph_log_part(size, 0.0, 0.0);
    logarithm = size == 0.0f ? -INFINITY : logarithm;
    logarithm = size == INFINITY ? INFINITY : logarithm;
    f32 z = (f32)popgraph_exp(size == 1.0f ? 0.0 : y * logarithm);
    z = odd ? copysignf(z, x) : z;
    z = x < 0.0f && size < INFINITY && !whole ? NAN : z;
    z = x != x || y != y ? NAN : z;
    return x == 1.0f || y == 0.0f ? 1.0f : z;
}

#if defined(POPGRAPH_PORTABLE)
#include "portable.h"
POPGRAPH_INLINE f64 popgraph_erf(f64 x) { return popgraph_long_erf(x); }
POPGRAPH_INLINE f64 popgraph_pow(f64 x, f64 y) { return popgraph_long_pow(x, y); }
#else
#define popgraph_far_sin sin
#define popgraph_far_cos cos
#define popgraph_far_tan tan
#define popgraph_far_sinf sinf
#define popgraph_far_cosf cosf
#define popgraph_far_tanf tanf
POPGRAPH_INLINE f64 popgraph_erf(f64 x) { return erf(x); }
POPGRAPH_INLINE f64 popgraph_pow(f64 x, f64 y) { return pow(x, y); }
#endif

#endif
