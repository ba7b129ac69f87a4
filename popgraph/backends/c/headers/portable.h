/*
 * Functions that portable kernels compute themselves where others call libm, whose last digit
 * differs between systems. derived.h, which stands after this, and kernels use them.
 */
#ifndef POPGRAPH_PORTABLE_H
#define POPGRAPH_PORTABLE_H

/* What a product lacks as it is rounded: exactly a * b - product. */
POPGRAPH_INLINE f64 popgraph_rest(f64 a, f64 b, f64 product) {
#if defined(__FP_FAST_FMA) || defined(__FMA__) || defined(__aarch64__)
    return __builtin_fma(a, b, -product);
#else
    const f64 s = 134217729.0 * a, t = 134217729.0 * b;
    const f64 high = s - (s - a), top = t - (t - b), low = a - high, end = b - top;
    return ((high * top - product) + high * end + low * top) + low * end;
#endif
}

/*
 * |x| = n pi/2 + r + tail for |x| of a million and more, from 192 bits of 2 / pi that count: x is a
 * whole number of 53 bits times a power of two, and multiples of 4 quarters do not matter.
 */
POPGRAPH_INLINE u64 popgraph_far_quarters(f64 x, f64 *r, f64 *tail) {
    static const u32 inverse[] = {
        0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
        0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e,
        0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b,
        0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7,
        0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1,
        0x1f8d5d08, 0x56033046, 0xfc7b6bab,
    };
    const u64 bits = popgraph_bits(fabs(x));
    const int exponent = (int)(bits >> 52) - 1075, skipped = exponent > 2 ? exponent - 2 : 0;
    const u64 whole = (bits & 0x000fffffffffffff) | 0x0010000000000000;
    u32 product[10] = {0};
    for (int k = 0; k < 6; k++) { /* from the least of the six words */
        const int at = (skipped >> 5) + 5 - k, moved = skipped & 31;
        const u32 word = (u32)(((u64)inverse[at] << 32 | inverse[at + 1]) >> (32 - moved));
        const u64 low = (u64)(u32)whole * word + product[k];
        const u64 high = (whole >> 32) * word + product[k + 1] + (low >> 32);
        product[k] = (u32)low;
        product[k + 1] = (u32)high;
        product[k + 2] = (u32)(high >> 32);
    }
    const int point = 192 - (exponent - skipped);
    u64 parts[3]; /* below the point: 64 bits, 64 bits more; and the quarters */
    for (int k = 0; k < 3; k++) {
        const int from = k == 0 ? point - 128 : k == 1 ? point - 64 : point;
        const u64 low = (u64)product[from >> 5] | (u64)product[(from >> 5) + 1] << 32;
        const u64 high = product[(from >> 5) + 2];
        parts[k] = from & 31 ? low >> (from & 31) | high << (64 - (from & 31)) : low;
    }
    const u64 quarters = parts[2] + (parts[1] >> 63); /* to the nearest */
    const i64 share = (i64)parts[1];
    const f64 most = (f64)(share & ~(i64)0x7ff) * 0x1p-64;
    const f64 least = ((f64)(share & 0x7ff) + (f64)parts[0] * 0x1p-64) * 0x1p-64;
    const f64 half_pi = 1.5707963267948966, more = 6.123233995736766e-17;
    const f64 high = most * half_pi;
    const f64 low = popgraph_rest(most, half_pi, high) + (most * more + least * half_pi);
    const f64 sum = high + low, rest = (high - sum) + low;
    *r = x < 0.0 ? -sum : sum;
    *tail = x < 0.0 ? -rest : rest;
    return x < 0.0 ? 0 - quarters : quarters;
}

/* The sine of x + quarters pi/2. */
POPGRAPH_INLINE f64 popgraph_far_turned(f64 x, u64 quarters) {
    if (!(fabs(x) < INFINITY)) return NAN;
    f64 r, tail;
    const u64 turn = popgraph_far_quarters(x, &r, &tail) + quarters;
    const f64 sine = popgraph_sin_part(r, tail), cosine = popgraph_cos_part(r, tail);
    return popgraph_from_bits(popgraph_bits(turn & 1 ? cosine : sine) ^ (turn & 2) << 62);
}

POPGRAPH_INLINE f64 popgraph_far_sin(f64 x) { return popgraph_far_turned(x, 0); }
POPGRAPH_INLINE f64 popgraph_far_cos(f64 x) { return popgraph_far_turned(x, 1); }
POPGRAPH_INLINE f64 popgraph_far_tan(f64 x) {
    return popgraph_far_turned(x, 0) / popgraph_far_turned(x, 1);
}
POPGRAPH_INLINE f32 popgraph_far_sinf(f32 x) { return (f32)popgraph_far_sin((f64)x); }
POPGRAPH_INLINE f32 popgraph_far_cosf(f32 x) { return (f32)popgraph_far_cos((f64)x); }
POPGRAPH_INLINE f32 popgraph_far_tanf(f32 x) { return (f32)popgraph_far_tan((f64)x); }

/* ln(x) + *more for positive normal x, to 64 bits: 2 artanh s with s = (m - 1) / (m + 1). */
POPGRAPH_INLINE f64 popgraph_long_log(f64 x, f64 scale, f64 *more) {
    const u64 moved = popgraph_bits(x) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
    const f64 biased = popgraph_from_bits(0x4330000000000000 | moved >> 52);
    const f64 e = biased - (4503599627370496.0 + 1023.0) - scale;
    const f64 m = popgraph_from_bits((moved & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
    const f64 f = m - 1.0, sum = m + 1.0, lacks = m < 1.0 ? m - (sum - 1.0) : 1.0 - (sum - m);
    const f64 s = f / sum, product = s * sum;
    const f64 t = (((f - product) - popgraph_rest(s, sum, product)) - s * lacks) / sum;
    const f64 z = s * s, y = popgraph_rest(s, s, z) + 2.0 * s * t;
    f64 p = 1.0 / 25.0;
    p = p * z + 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    const f64 third = 1.0 / 3.0, rest = 1.850371707708594e-17;
    const f64 high = z * third, low = popgraph_rest(z, third, high) + (z * rest + y * third);
    const f64 tail = z * z * p, both = high + tail, lost = (tail - (both - high)) + low;
    const f64 times = s * both, left = popgraph_rest(s, both, times) + (s * lost + t * both);
    const f64 near = s + times, missing = ((times - (near - s)) + left) + t;
    const f64 far = e * 6.93147180369123816490e-01, total = far + 2.0 * near;
    const f64 end = (2.0 * near - (total - far)) + (2.0 * missing + e * 1.90821492927058770002e-10);
    const f64 found = total + end;
    *more = (total - found) + end;
    return found;
}

/* x^y = e^(y ln x), at most two units in the last place from the correctly rounded result. */
POPGRAPH_INLINE f64 popgraph_long_pow(f64 x, f64 y) {
    const f64 size = fabs(x), power = fabs(y), half = 0.5 * power;
    const bool whole = trunc(power) == power, odd = whole && trunc(half) != half;
    const bool small = size < 2.2250738585072014e-308;
    f64 more;
    f64 logarithm = popgraph_long_log(small ? size * 0x1p54 : size, small ? 54.0 : 0.0, &more);
    logarithm = size == 0.0 ? -INFINITY : size == INFINITY ? INFINITY : logarithm;
    const f64 product = y * logarithm;
    f64 rest = popgraph_rest(y, logarithm, product) + y * more;
    rest = fabs(product) < 1000.0 ? rest : 0.0;
    f64 z = popgraph_exp(product);
    z = z < INFINITY ? z + z * rest : z;
    z = size == 1.0 ? 1.0 : z;
    z = odd ? copysign(z, x) : z;
    z = x < 0.0 && size < INFINITY && !whole ? NAN : z;
    z = x != x || y != y ? NAN : z;
    return x == 1.0 || y == 0.0 ? 1.0 : z;
}

/*
 * A series of positive terms up to 3, a continued fraction of what is missing to 1 beyond: at most 16
 * units in the last place from the correctly rounded result.
 */
POPGRAPH_INLINE f64 popgraph_long_erf(f64 x) {
    const f64 size = fabs(x), near = size < 3.0 ? size : 3.0, far = size < 6.0 ? size : 6.0;
    const f64 square = near * near, lost = popgraph_rest(near, near, square);
    f64 term = near, sum = near, fraction = 1.0;
    for (int n = 1; n <= 70; n++) {
        term *= 2.0 * square / (2.0 * n + 1.0);
        sum += term;
    }
    const f64 inside = 1.1283791670955126 * (sum * popgraph_exp(-square) * (1.0 - lost));
    for (int n = 60; n > 0; n--) fraction = 1.0 + n / (2.0 * far * far) / fraction;
    const f64 outside = popgraph_exp(-far * far) * 0.5641895835477563 / (far * fraction);
    return size != size ? x : copysign(size < 3.0 ? inside : 1.0 - outside, x);
}

#endif
