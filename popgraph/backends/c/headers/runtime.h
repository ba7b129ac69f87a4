/*
 * What does generated C stand on? Names for element types, and half-precision conversions.
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
 * a where it is greater (or less) than b, else b, so that b stands where either is NaN: for vectors
 * T of floats, M being the unsigned type of the same shape. One instruction on x86.
 */
#define POPGRAPH_BLEND(T, M, mask, a, b) ((T)(((M)(a) & (mask)) | ((M)(b) & ~(mask))))
#define POPGRAPH_GREATER(T, M, a, b) __extension__ ({ \
    const T x = (a), y = (b); \
    POPGRAPH_BLEND(T, M, (M)(x > y), x, y); \
})
#define POPGRAPH_LESS(T, M, a, b) __extension__ ({ \
    const T x = (a), y = (b); \
    POPGRAPH_BLEND(T, M, (M)(x < y), x, y); \
})
#if defined(__SSE2__)
#define POPGRAPH_GREATER_F32_4(T, M, a, b) ((T)__builtin_ia32_maxps(a, b))
#define POPGRAPH_LESS_F32_4(T, M, a, b) ((T)__builtin_ia32_minps(a, b))
#define POPGRAPH_GREATER_F64_2(T, M, a, b) ((T)__builtin_ia32_maxpd(a, b))
#define POPGRAPH_LESS_F64_2(T, M, a, b) ((T)__builtin_ia32_minpd(a, b))
#else
#define POPGRAPH_GREATER_F32_4 POPGRAPH_GREATER
#define POPGRAPH_LESS_F32_4 POPGRAPH_LESS
#define POPGRAPH_GREATER_F64_2 POPGRAPH_GREATER
#define POPGRAPH_LESS_F64_2 POPGRAPH_LESS
#endif
#if defined(__AVX__)
#define POPGRAPH_GREATER_F32_8(T, M, a, b) ((T)__builtin_ia32_maxps256(a, b))
#define POPGRAPH_LESS_F32_8(T, M, a, b) ((T)__builtin_ia32_minps256(a, b))
#define POPGRAPH_GREATER_F64_4(T, M, a, b) ((T)__builtin_ia32_maxpd256(a, b))
#define POPGRAPH_LESS_F64_4(T, M, a, b) ((T)__builtin_ia32_minpd256(a, b))
#else
#define POPGRAPH_GREATER_F32_8 POPGRAPH_GREATER
#define POPGRAPH_LESS_F32_8 POPGRAPH_LESS
#define POPGRAPH_GREATER_F64_4 POPGRAPH_GREATER
#define POPGRAPH_LESS_F64_4 POPGRAPH_LESS
#endif
#if defined(__AVX512F__) && defined(__clang__)
#define POPGRAPH_GREATER_F32_16(T, M, a, b) ((T)__builtin_ia32_maxps512(a, b, 4))
#define POPGRAPH_LESS_F32_16(T, M, a, b) ((T)__builtin_ia32_minps512(a, b, 4))
#define POPGRAPH_GREATER_F64_8(T, M, a, b) ((T)__builtin_ia32_maxpd512(a, b, 4))
#define POPGRAPH_LESS_F64_8(T, M, a, b) ((T)__builtin_ia32_minpd512(a, b, 4))
#elif defined(__AVX512F__)
#define POPGRAPH_GREATER_F32_16(T, M, a, b) \
    ((T)__builtin_ia32_maxps512_mask(a, b, (T){0}, (short)-1, 4))
#define POPGRAPH_LESS_F32_16(T, M, a, b) \
    ((T)__builtin_ia32_minps512_mask(a, b, (T){0}, (short)-1, 4))
#define POPGRAPH_GREATER_F64_8(T, M, a, b) \
    ((T)__builtin_ia32_maxpd512_mask(a, b, (T){0}, (char)-1, 4))
#define POPGRAPH_LESS_F64_8(T, M, a, b) ((T)__builtin_ia32_minpd512_mask(a, b, (T){0}, (char)-1, 4))
#else
#define POPGRAPH_GREATER_F32_16 POPGRAPH_GREATER
#define POPGRAPH_LESS_F32_16 POPGRAPH_LESS
#define POPGRAPH_GREATER_F64_8 POPGRAPH_GREATER
#define POPGRAPH_LESS_F64_8 POPGRAPH_LESS
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
    __extension__ ({                                        \
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

#define POPGRAPH_F32_TO_BF16(F, U, x) __extension__ ({ \
    const U wide = POPGRAPH_BITS(F, U, x); \
    const U nan = POPGRAPH_IF(0x7f800000u, wide & 0x7fffffff); \
    const U rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16; \
    (rounded & ~nan) | (((wide >> 16) | 0x40) & nan); \
})

/* A subnormal is what its bits add to the least normal number: no product of subnormals, slow. */
#define POPGRAPH_F16_TO_F32(F, U, x) __extension__ ({ \
    const U half = (x), size = half & 0x7fff, moved = (size << 13) + 0x38000000; \
    const U small = POPGRAPH_IF(size, 0x400u), nan = POPGRAPH_IF(0x7c00u, size) & 0x400000; \
    const U special = (POPGRAPH_IF(0x7bffu, size) & 0x7f800000) | nan; \
    const F least = POPGRAPH_NUMBER(F, U, moved + 0x800000) - 0x1p-14f; \
    const U bits = (POPGRAPH_BITS(F, U, least) & small) | ((moved | special) & ~small); \
    POPGRAPH_NUMBER(F, U, bits | ((half & 0x8000) << 16)); \
})

#define POPGRAPH_F32_TO_F16(F, U, x) __extension__ ({ \
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
    ((F)__builtin_ia32_vcvtph2ps512_mask((popgraph_halves_16)(x), (F){0}, (short)-1, 4))
#define POPGRAPH_F32_TO_F16_16(F, U, H, x) \
    ((H)__builtin_ia32_vcvtps2ph512_mask((x), 0, (popgraph_halves_16){0}, (short)-1))
#else
#define POPGRAPH_F16_TO_F32_16 POPGRAPH_PLAIN_F16_TO_F32
#define POPGRAPH_F32_TO_F16_16 POPGRAPH_PLAIN_F32_TO_F16
#endif

static inline f32 f16_to_f32(f16 x) { return POPGRAPH_F16_TO_F32(f32, u32, (u32)x); }
static inline f16 f32_to_f16(f32 x) { return (f16)POPGRAPH_F32_TO_F16(f32, u32, x); }
static inline f32 bf16_to_f32(bf16 x) { return POPGRAPH_BF16_TO_F32(f32, u32, (u32)x); }
static inline bf16 f32_to_bf16(f32 x) { return (bf16)POPGRAPH_F32_TO_BF16(f32, u32, x); }

/*
 * A sum to which the products of both halves of two words are added, all of i16; it wraps. T is i32
 * or a vector of it, U the unsigned type of this shape. Two instructions on x86, one with VNNI.
 */
#define POPGRAPH_PLAIN_DOT_I16(T, U, a, b, c) __extension__ ({ \
    const T x = (a), y = (b); \
    const T low = ((T)((U)x << 16) >> 16) * ((T)((U)y << 16) >> 16); \
    (T)((U)(c) + (U)low + (U)((x >> 16) * (y >> 16))); \
})

#if defined(__SSE2__)
typedef short popgraph_i16x8 __attribute__((vector_size(16)));
#define POPGRAPH_DOT_I16_4(T, U, a, b, c) \
    ((T)((U)(c) + (U)__builtin_ia32_pmaddwd128((popgraph_i16x8)(a), (popgraph_i16x8)(b))))
#else
#define POPGRAPH_DOT_I16_4 POPGRAPH_PLAIN_DOT_I16
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#if POPGRAPH_HAS(__builtin_ia32_vpdpwssd_v8si)
#define POPGRAPH_DOT_I16_8(T, U, a, b, c) ((T)__builtin_ia32_vpdpwssd_v8si(c, (T)(a), (T)(b)))
#else
#define POPGRAPH_DOT_I16_8(T, U, a, b, c) ((T)__builtin_ia32_vpdpwssd256(c, (T)(a), (T)(b)))
#endif
#elif defined(__AVX2__)
typedef short popgraph_i16x16 __attribute__((vector_size(32)));
#define POPGRAPH_DOT_I16_8(T, U, a, b, c) \
    ((T)((U)(c) + (U)__builtin_ia32_pmaddwd256((popgraph_i16x16)(a), (popgraph_i16x16)(b))))
#else
#define POPGRAPH_DOT_I16_8 POPGRAPH_PLAIN_DOT_I16
#endif

#if defined(__AVX512VNNI__)
#if POPGRAPH_HAS(__builtin_ia32_vpdpwssd_v16si)
#define POPGRAPH_DOT_I16_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpwssd_v16si(c, (T)(a), (T)(b)))
#else
#define POPGRAPH_DOT_I16_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpwssd512(c, (T)(a), (T)(b)))
#endif
#elif defined(__AVX512BW__)
typedef short popgraph_i16x32 __attribute__((vector_size(64)));
#if defined(__clang__)
#define POPGRAPH_PAIRS_16(T, a, b) \
    __builtin_ia32_pmaddwd512((popgraph_i16x32)(a), (popgraph_i16x32)(b))
#else
#define POPGRAPH_PAIRS_16(T, a, b) \
    __builtin_ia32_pmaddwd512_mask((popgraph_i16x32)(a), (popgraph_i16x32)(b), (T){0}, (short)-1)
#endif
#define POPGRAPH_DOT_I16_16(T, U, a, b, c) ((T)((U)(c) + (U)POPGRAPH_PAIRS_16(T, a, b)))
#else
#define POPGRAPH_DOT_I16_16 POPGRAPH_PLAIN_DOT_I16
#endif

/*
 * The same of four bytes, without sign on the left and with one on the right: VNNI has an
 * instruction for it. Others add up two products in 16 bits, which those of numbers from -64 to 64
 * fit.
 */
#define POPGRAPH_PLAIN_DOT_U8I8(T, U, a, b, c) __extension__ ({ \
    const U x = (U)(a), y = (U)(b); \
    U sum = (U)(c); \
    sum += (x & 255) * (U)((T)(y << 24) >> 24) + ((x >> 8) & 255) * (U)((T)(y << 16) >> 24); \
    sum += ((x >> 16) & 255) * (U)((T)(y << 8) >> 24) + (x >> 24) * (U)((T)y >> 24); \
    (T)sum; \
})
#define POPGRAPH_PLAIN_DOT_U8I7 POPGRAPH_PLAIN_DOT_U8I8

#if defined(__AVX512VNNI__) && POPGRAPH_HAS(__builtin_ia32_vpdpbusd_v16si)
#define POPGRAPH_DOT_U8I8_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd_v16si(c, (T)(a), (T)(b)))
#elif defined(__AVX512VNNI__)
#define POPGRAPH_DOT_U8I8_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd512(c, (T)(a), (T)(b)))
#else
#define POPGRAPH_DOT_U8I8_16 POPGRAPH_PLAIN_DOT_U8I8
#endif
#if (defined(__AVX512VNNI__) && defined(__AVX512VL__)) || defined(__AVXVNNI__)
#if POPGRAPH_HAS(__builtin_ia32_vpdpbusd_v8si)
#define POPGRAPH_DOT_U8I8_8(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd_v8si(c, (T)(a), (T)(b)))
#define POPGRAPH_DOT_U8I8_4(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd_v4si(c, (T)(a), (T)(b)))
#else
#define POPGRAPH_DOT_U8I8_8(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd256(c, (T)(a), (T)(b)))
#define POPGRAPH_DOT_U8I8_4(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd128(c, (T)(a), (T)(b)))
#endif
#else
#define POPGRAPH_DOT_U8I8_8 POPGRAPH_PLAIN_DOT_U8I8
#define POPGRAPH_DOT_U8I8_4 POPGRAPH_PLAIN_DOT_U8I8
#endif

#define POPGRAPH_ONES(T) ((T){0} + 0x00010001)
#if defined(__SSSE3__)
typedef char popgraph_i8x16 __attribute__((vector_size(16)));
#define POPGRAPH_DOT_U8I7_4(T, U, a, b, c) POPGRAPH_DOT_I16_4(T, U, \
    __builtin_ia32_pmaddubsw128((popgraph_i8x16)(a), (popgraph_i8x16)(b)), POPGRAPH_ONES(T), c)
#else
#define POPGRAPH_DOT_U8I7_4 POPGRAPH_PLAIN_DOT_U8I8
#endif
#if defined(__AVX2__)
typedef char popgraph_i8x32 __attribute__((vector_size(32)));
#define POPGRAPH_DOT_U8I7_8(T, U, a, b, c) POPGRAPH_DOT_I16_8(T, U, \
    __builtin_ia32_pmaddubsw256((popgraph_i8x32)(a), (popgraph_i8x32)(b)), POPGRAPH_ONES(T), c)
#else
#define POPGRAPH_DOT_U8I7_8 POPGRAPH_PLAIN_DOT_U8I8
#endif
#if defined(__AVX512BW__) && !defined(__AVX512VNNI__)
typedef char popgraph_i8x64 __attribute__((vector_size(64)));
#if defined(__clang__)
#define POPGRAPH_BYTES_16(a, b) \
    __builtin_ia32_pmaddubsw512((popgraph_i8x64)(a), (popgraph_i8x64)(b))
#else
#define POPGRAPH_BYTES_16(a, b) __builtin_ia32_pmaddubsw512_mask( \
    (popgraph_i8x64)(a), (popgraph_i8x64)(b), (popgraph_i16x32){0}, -1)
#endif
#define POPGRAPH_DOT_U8I7_16(T, U, a, b, c) \
    POPGRAPH_DOT_I16_16(T, U, POPGRAPH_BYTES_16(a, b), POPGRAPH_ONES(T), c)
#else
#define POPGRAPH_DOT_U8I7_16 POPGRAPH_DOT_U8I8_16
#endif

/* Rounded to odd: a second rounding, to f16, then gives what one rounding would have given. */
static inline f32 f64_to_odd_f32(f64 x) {
    union { f32 number; u32 bits; } made = {.number = (f32)x};
    const f64 back = made.number;
    const bool odd = back == x || x != x || (made.bits & 1);
    made.bits += odd ? 0u : fabs(back) > fabs(x) ? -1u : 1u;
    return made.number;
}

/* A function of one element on all lanes of a vector. */
#define POPGRAPH_LANES(A, a, B, b, n, function, x) __extension__ ({ \
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

#endif
