/*
 * What does generated C stand on? Names for element types, and half-precision conversions.
 */
#ifndef POPGRAPH_RUNTIME_H
#define POPGRAPH_RUNTIME_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#if !defined(__GNUC__) && !defined(__clang__)
#error "PopGraph needs the vectors of GCC and Clang: on Windows, use zig cc, clang or MinGW's gcc"
#endif

/*
 * Portable kernels round every product and every sum, but those of fma: compilers must not fuse
 * others where the machine has an instruction for it.
 */
#if defined(POPGRAPH_PORTABLE) && defined(__clang__)
#pragma clang fp contract(off)
#elif defined(POPGRAPH_PORTABLE)
#pragma GCC optimize("fp-contract=off")
#endif

/* A symbol of a shared library that others see. */
#if defined(_WIN32)
#define POPGRAPH_EXPORT __declspec(dllexport)
#else
#define POPGRAPH_EXPORT __attribute__((visibility("default")))
#endif

/*
 * A function that several objects of a library may define; the linker keeps one of them. For Windows,
 * GNU's linker does not find weak functions, so an option permits plain ones. Clang's definitions
 * collide unless each object has a strong symbol of its own, whose name Clang then adds to theirs.
 */
#if defined(_WIN32) && !defined(__clang__)
#define POPGRAPH_WEAK
#else
#define POPGRAPH_WEAK __attribute__((weak))
#endif
#if defined(_WIN32) && defined(POPGRAPH_UNIT)
extern const char POPGRAPH_UNIT;
const char POPGRAPH_UNIT = 0;
#endif

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

/*
 * Of functions of one element, which loops over the lanes of a vector call: only what is written out
 * in the loop becomes vector instructions, be it as long as pow is and called in several places.
 */
#define POPGRAPH_INLINE static inline __attribute__((always_inline))

/* Whether there is such a builtin; GCC, which could not say before its tenth version, has all. */
#if defined(__clang__)
#define POPGRAPH_HAS(builtin) __has_builtin(builtin)
#else
#define POPGRAPH_HAS(builtin) 1
#endif

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

POPGRAPH_INLINE f32 f16_to_f32(f16 x) { return POPGRAPH_F16_TO_F32(f32, u32, (u32)x); }
POPGRAPH_INLINE f16 f32_to_f16(f32 x) { return (f16)POPGRAPH_F32_TO_F16(f32, u32, x); }
POPGRAPH_INLINE f32 bf16_to_f32(bf16 x) { return POPGRAPH_BF16_TO_F32(f32, u32, (u32)x); }
POPGRAPH_INLINE bf16 f32_to_bf16(f32 x) { return (bf16)POPGRAPH_F32_TO_BF16(f32, u32, x); }

/* Rounded to odd: a second rounding, to f16, then gives what one rounding would have given. */
POPGRAPH_INLINE f32 f64_to_odd_f32(f64 x) {
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

#include "vectors.h"
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
