/*
 * How do elements become those of another type? What C leaves open, and floats of eight bits and
 * fewer. runtime.h, which has the types and the halves, includes this.
 */
#ifndef POPGRAPH_CONVERSIONS_H
#define POPGRAPH_CONVERSIONS_H

/*
 * The whole part of a float modulo 2^64: its low bits are the number in any integer type. C does
 * not say what becomes of numbers out of range; here infinities and NaN are 0.
 */
POPGRAPH_INLINE u64 f64_to_whole(f64 x) {
    if (x >= -0x1p63 && x < 0x1p63) return (u64)(i64)x;
    const f64 rest = x - trunc(x * 0x1p-64) * 0x1p64;
    return rest >= 0.0 ? (u64)rest : rest < 0.0 ? 0 - (u64)-rest : 0;
}

POPGRAPH_INLINE u64 f32_to_whole(f32 x) {
    return x >= -0x1p31f && x < 0x1p31f ? (u64)(i32)x : f64_to_whole((f64)x);
}

/*
 * The nearest integer, ties to even, between two integers; NaN is the lower one. A Cortex-M4 converts
 * with saturation, NaN to 0, in one instruction, and has none for rintf.
 */
POPGRAPH_INLINE i32 popgraph_nearest(f32 x, f32 low, f32 high) {
#if defined(__ARM_FP) && defined(__thumb__) && !defined(__ARM_FEATURE_DIRECTED_ROUNDING)
    i32 whole;
    if (low != 0.0f) x = x > low ? x : low;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(whole) : "t"(x));
    if (low == 0.0f) whole = whole > 0 ? whole : 0;
    return whole < (i32)high ? whole : (i32)high;
#else
    x = x > low ? x : low;
    return (i32)rintf(!(x > high) ? x : high);
#endif
}

/* All lanes at once where no number is out of range. */
#define POPGRAPH_WHOLE_LANES(F, f, I, i, n, limit, whole, x) __extension__ ({ \
    union { F v; f s[n]; } from = {.v = (x)}; \
    union { I v; i s[n]; } to; \
    int away = 0; \
    for (int k = 0; k < n; k++) away |= !(from.s[k] >= -limit) | !(from.s[k] < limit); \
    if (away) for (int k = 0; k < n; k++) to.s[k] = (i)whole(from.s[k]); \
    else to.v = __builtin_convertvector(from.v, I); \
    to.v; \
})

/*
 * Floats of eight bits and fewer, each in a byte of its own, are computed in f32 as halves are. A
 * size is what stands in the bits below the sign, which is any bit above it, as NumPy reads it.
 */
POPGRAPH_INLINE u32 popgraph_sign(f32 x) { return POPGRAPH_BITS(f32, u32, x) >> 31; }

POPGRAPH_INLINE f32 popgraph_signed(u32 bits, u32 sign) {
    return POPGRAPH_NUMBER(f32, u32, bits | sign << 31);
}

/* The bits, in f32, of a finite size. */
POPGRAPH_INLINE u32 popgraph_from_size(u32 size, u32 fraction, u32 bias) {
    if (size >> fraction) return (size << (23 - fraction)) + ((127 - bias) << 23);
    const f32 least = POPGRAPH_NUMBER(f32, u32, (128 - bias - fraction) << 23);
    return POPGRAPH_BITS(f32, u32, (f32)size * least);
}

/* The size of what is nearest, the even one of two, as if the exponent had no end. */
POPGRAPH_INLINE u32 popgraph_to_size(f32 x, u32 fraction, u32 bias) {
    const u32 wide = POPGRAPH_BITS(f32, u32, x) & 0x7fffffff;
    if (wide < (128 - bias) << 23) {
        const u32 least = (151 - bias - fraction) << 23;
        const f32 sum = popgraph_signed(wide, 0) + POPGRAPH_NUMBER(f32, u32, least);
        return POPGRAPH_BITS(f32, u32, sum) - least;
    }
    const u32 odd = (wide >> (23 - fraction)) & 1, half = 1u << (22 - fraction);
    return (wide - ((127 - bias) << 23) + half - 1 + odd) >> (23 - fraction);
}

/* Infinities and NaN, as IEEE has them. */
POPGRAPH_INLINE f32 f8e5m2_to_f32(u8 x) {
    const u32 size = x & 0x7f;
    const u32 bits = size < 0x7c ? popgraph_from_size(size, 2, 15) : 0x7f800000;
    return popgraph_signed(bits | (u32)(size > 0x7c) << 22, x >> 7);
}

POPGRAPH_INLINE u8 f32_to_f8e5m2(f32 x) {
    const u32 size = popgraph_to_size(x, 2, 15), end = x != x ? 0x7e : 0x7c;
    return (u8)((size < 0x7c ? size : end) | popgraph_sign(x) << 7);
}

/* No infinities. */
POPGRAPH_INLINE f32 f8e4m3fn_to_f32(u8 x) {
    const u32 size = x & 0x7f;
    return popgraph_signed(size < 0x7f ? popgraph_from_size(size, 3, 7) : 0x7fc00000, x >> 7);
}

POPGRAPH_INLINE u8 f32_to_f8e4m3fn(f32 x) {
    const u32 size = popgraph_to_size(x, 3, 7);
    return (u8)((size < 0x7f ? size : 0x7f) | popgraph_sign(x) << 7);
}

/* One NaN, where -0 would stand, and no infinities. */
#define POPGRAPH_FNUZ(name, fraction, bias) \
    POPGRAPH_INLINE f32 name##_to_f32(u8 x) { \
        const u32 bits = x == 0x80 ? 0x7fc00000 : popgraph_from_size(x & 0x7f, fraction, bias); \
        return popgraph_signed(bits, x >> 7); \
    } \
    POPGRAPH_INLINE u8 f32_to_##name(f32 x) { \
        const u32 size = popgraph_to_size(x, fraction, bias); \
        return (u8)(size > 0x7f ? 0x80 : size ? size | popgraph_sign(x) << 7 : 0); \
    }
POPGRAPH_FNUZ(f8e4m3fnuz, 3, 8)
POPGRAPH_FNUZ(f8e5m2fnuz, 2, 16)

/* Finite numbers only: the largest stands for all beyond it, and a zero for NaN. */
#define POPGRAPH_FINITE(name, exponent, fraction, bias) \
    enum { name##_largest = (1 << (exponent + fraction)) - 1 }; \
    POPGRAPH_INLINE f32 name##_to_f32(u8 x) { \
        const u32 size = x & name##_largest, sign = x > name##_largest; \
        return popgraph_signed(popgraph_from_size(size, fraction, bias), sign); \
    } \
    POPGRAPH_INLINE u8 f32_to_##name(f32 x) { \
        const u32 size = popgraph_to_size(x, fraction, bias), sign = popgraph_sign(x); \
        const u32 number = size < name##_largest ? size : name##_largest; \
        return (u8)(x != x ? !sign << (exponent + fraction) \
                           : number | sign << (exponent + fraction)); \
    }
POPGRAPH_FINITE(f4e2m1, 2, 1, 1)
POPGRAPH_FINITE(f6e2m3, 2, 3, 1)
POPGRAPH_FINITE(f6e3m2, 3, 2, 3)

/* Powers of two from 2^-127 on, and NaN; halfway, and between the least two, the larger. */
POPGRAPH_INLINE f32 f8e8m0_to_f32(u8 x) {
    const u32 bits = x == 0xff ? 0x7fc00000 : x ? (u32)x << 23 : 0x400000;
    return POPGRAPH_NUMBER(f32, u32, bits);
}

POPGRAPH_INLINE u8 f32_to_f8e8m0(f32 x) {
    const u32 wide = POPGRAPH_BITS(f32, u32, x);
    if (!(x > 0.0f)) return 0xff;
    if (wide < 0x800000) return wide > 0x400000;
    return (u8)(wide < 0x7f800000 ? (wide + 0x400000) >> 23 : 0xff);
}

#endif
