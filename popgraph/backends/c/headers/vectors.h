/*
 * Which instructions do vectors have? What GCC or clang find only with help, and plain forms for
 * targets without them. runtime.h, which has the types and the halves, includes this.
 */
#ifndef POPGRAPH_VECTORS_H
#define POPGRAPH_VECTORS_H

/* Vectors as the builtins of x86 take them. */
typedef char popgraph_i8x16 __attribute__((vector_size(16)));
typedef char popgraph_i8x32 __attribute__((vector_size(32)));
typedef char popgraph_i8x64 __attribute__((vector_size(64)));
typedef short popgraph_i16x8 __attribute__((vector_size(16)));
typedef short popgraph_i16x16 __attribute__((vector_size(32)));
typedef unsigned short popgraph_u16x8 __attribute__((vector_size(16)));
typedef unsigned short popgraph_u16x16 __attribute__((vector_size(32)));
typedef short popgraph_i16x32 __attribute__((vector_size(64)));

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
 * a * b + c, rounded once. Machines without an instruction for it round a sum of f64, which has room
 * for any product of f32, to odd: a second rounding, to f32, then gives what one would have given.
 */
#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__) || \
    defined(__ARM_FEATURE_FMA) || (defined(__riscv_flen) && __riscv_flen >= 32)
POPGRAPH_INLINE f32 popgraph_fmaf(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
#else
POPGRAPH_INLINE f32 popgraph_fmaf(f32 a, f32 b, f32 c) {
    const f64 product = (f64)a * (f64)b, sum = product + (f64)c, most = sum - product;
    const f64 rest = (product - (sum - most)) + ((f64)c - most);
    union { f64 number; u64 bits; } odd = {.number = sum};
    const bool is_exact = !(rest < 0.0 || rest > 0.0) || (odd.bits & 1);
    odd.bits += is_exact ? 0u : (rest < 0.0) == (sum < 0.0) ? 1u : (u64)-1;
    return (f32)odd.number;
}
#if defined(__SSE2__) || defined(__wasm_simd128__)
/*
 * Four at once, in two vectors of f64. Their sums can be rounded again as they are, unless one is
 * halfway between two f32, or below the normal f32 and not 0: about one in 2^29.
 */
typedef f32 popgraph_f32x4 __attribute__((vector_size(16)));
typedef f64 popgraph_f64x2 __attribute__((vector_size(16)));
typedef i32 popgraph_i32x4 __attribute__((vector_size(16)));
#if defined(__clang__)
#define POPGRAPH_WIDE(v, first) \
    __builtin_convertvector(__builtin_shufflevector(v, v, first, first + 1), popgraph_f64x2)
POPGRAPH_INLINE popgraph_f32x4 popgraph_narrow(popgraph_f64x2 low, popgraph_f64x2 high) {
    typedef f32 pair __attribute__((vector_size(8)));
    const pair one = __builtin_convertvector(low, pair), other = __builtin_convertvector(high, pair);
    return __builtin_shufflevector(one, other, 0, 1, 2, 3);
}
#else
#define POPGRAPH_WIDE(v, first) \
    __builtin_ia32_cvtps2pd(first ? __builtin_ia32_movhlps(v, v) : v)
POPGRAPH_INLINE popgraph_f32x4 popgraph_narrow(popgraph_f64x2 low, popgraph_f64x2 high) {
    return __builtin_ia32_movlhps(__builtin_ia32_cvtpd2ps(low), __builtin_ia32_cvtpd2ps(high));
}
#endif
#if defined(__SSE2__)
#define POPGRAPH_ANY(mask) __builtin_ia32_pmovmskb128((popgraph_i8x16)(mask))
#else
typedef signed char popgraph_bytes __attribute__((vector_size(16)));
#define POPGRAPH_ANY(mask) __builtin_wasm_any_true_v128((popgraph_bytes)(mask))
#endif
/* In the low word, the bits that f32 has no room for; in the high word, the exponent. */
POPGRAPH_INLINE popgraph_i32x4 popgraph_rounds_twice(popgraph_f64x2 sum) {
    const popgraph_i32x4 kept = {0x1fffffff, 0x7fffffff, 0x1fffffff, 0x7fffffff};
    const popgraph_i32x4 moved = {0x70000000, 0x7fffffff, 0x70000000, 0x7fffffff};
    const i32 low = INT32_MIN + 1, high = INT32_MIN + 0x380fffff;
    const popgraph_i32x4 below = {low, high, low, high};
    return ((popgraph_i32x4)sum & kept) + moved < below;
}
__attribute__((noinline, cold, unused)) static popgraph_f32x4 popgraph_careful_fmaf(
    popgraph_f32x4 a, popgraph_f32x4 b, popgraph_f32x4 c
) {
    for (int k = 0; k < 4; k++) c[k] = popgraph_fmaf(a[k], b[k], c[k]);
    return c;
}
POPGRAPH_INLINE popgraph_f32x4 popgraph_fmaf_4(
    popgraph_f32x4 a, popgraph_f32x4 b, popgraph_f32x4 c
) {
    const popgraph_f64x2 low = POPGRAPH_WIDE(a, 0) * POPGRAPH_WIDE(b, 0) + POPGRAPH_WIDE(c, 0);
    const popgraph_f64x2 high = POPGRAPH_WIDE(a, 2) * POPGRAPH_WIDE(b, 2) + POPGRAPH_WIDE(c, 2);
    const popgraph_i32x4 twice = popgraph_rounds_twice(low) | popgraph_rounds_twice(high);
    if (__builtin_expect(POPGRAPH_ANY(twice) != 0, 0)) return popgraph_careful_fmaf(a, b, c);
    return popgraph_narrow(low, high);
}
#endif
#endif
POPGRAPH_INLINE f64 popgraph_fma(f64 a, f64 b, f64 c) { return fma(a, b, c); }
#define POPGRAPH_FMA(T, e, n, each, a, b, c) __extension__ ({ \
    union { T v; e s[n]; } x = {.v = (a)}, y = {.v = (b)}, z = {.v = (c)}, to; \
    for (int k = 0; k < n; k++) to.s[k] = each(x.s[k], y.s[k], z.s[k]); \
    to.v; \
})
#if defined(__clang__) && POPGRAPH_HAS(__builtin_elementwise_fma) && \
    (defined(__FMA__) || defined(__aarch64__))
#define POPGRAPH_FUSED(T, e, n, each, a, b, c) ((T)__builtin_elementwise_fma((a), (b), (c)))
#define POPGRAPH_FMA_F32_4 POPGRAPH_FUSED
#define POPGRAPH_FMA_F32_8 POPGRAPH_FUSED
#define POPGRAPH_FMA_F32_16 POPGRAPH_FUSED
#define POPGRAPH_FMA_F64_2 POPGRAPH_FUSED
#define POPGRAPH_FMA_F64_4 POPGRAPH_FUSED
#define POPGRAPH_FMA_F64_8 POPGRAPH_FUSED
#else
#if defined(__FMA__)
#define POPGRAPH_FMA_F32_4(T, e, n, each, a, b, c) ((T)__builtin_ia32_vfmaddps(a, b, c))
#define POPGRAPH_FMA_F64_2(T, e, n, each, a, b, c) ((T)__builtin_ia32_vfmaddpd(a, b, c))
#define POPGRAPH_FMA_F32_8(T, e, n, each, a, b, c) ((T)__builtin_ia32_vfmaddps256(a, b, c))
#define POPGRAPH_FMA_F64_4(T, e, n, each, a, b, c) ((T)__builtin_ia32_vfmaddpd256(a, b, c))
#elif defined(__aarch64__) && !defined(__clang__)
#define POPGRAPH_FMA_F32_4(T, e, n, each, a, b, c) ((T)__builtin_aarch64_fmav4sf(a, b, c))
#define POPGRAPH_FMA_F64_2(T, e, n, each, a, b, c) ((T)__builtin_aarch64_fmav2df(a, b, c))
#define POPGRAPH_FMA_F32_8 POPGRAPH_FMA
#define POPGRAPH_FMA_F64_4 POPGRAPH_FMA
#elif defined(__SSE2__) || defined(__wasm_simd128__)
#define POPGRAPH_FMA_F32_4(T, e, n, each, a, b, c) ((T)popgraph_fmaf_4(a, b, c))
#define POPGRAPH_FMA_F64_2 POPGRAPH_FMA
#define POPGRAPH_FMA_F32_8 POPGRAPH_FMA
#define POPGRAPH_FMA_F64_4 POPGRAPH_FMA
#else
#define POPGRAPH_FMA_F32_4 POPGRAPH_FMA
#define POPGRAPH_FMA_F64_2 POPGRAPH_FMA
#define POPGRAPH_FMA_F32_8 POPGRAPH_FMA
#define POPGRAPH_FMA_F64_4 POPGRAPH_FMA
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define POPGRAPH_FMA_F32_16(T, e, n, each, a, b, c) \
    ((T)__builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4))
#define POPGRAPH_FMA_F64_8(T, e, n, each, a, b, c) \
    ((T)__builtin_ia32_vfmaddpd512_mask(a, b, c, (char)-1, 4))
#else
#define POPGRAPH_FMA_F32_16 POPGRAPH_FMA
#define POPGRAPH_FMA_F64_8 POPGRAPH_FMA
#endif
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
 * Kernels that compute functions of several vectors side by side. A core has room for about 110
 * waiting instructions, a fraction of which is ready if chains follow each other. On x86, GCC mixes
 * chains only before registers are allocated, and with 16 registers only as far as they last.
 */
#if !defined(__x86_64__) || defined(__clang__)
#define POPGRAPH_SCHEDULED
#elif defined(__AVX512F__)
#define POPGRAPH_SCHEDULED __attribute__((optimize("schedule-insns")))
#else
#define POPGRAPH_SCHEDULED __attribute__((optimize("schedule-insns", "sched-pressure")))
#endif

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
#define POPGRAPH_F16_TO_F32_16(F, U, x) \
    ((F)__builtin_ia32_vcvtph2ps512_mask((popgraph_i16x16)(x), (F){0}, (short)-1, 4))
#define POPGRAPH_F32_TO_F16_16(F, U, H, x) \
    ((H)__builtin_ia32_vcvtps2ph512_mask((x), 0, (popgraph_i16x16){0}, (short)-1))
#else
#define POPGRAPH_F16_TO_F32_16 POPGRAPH_PLAIN_F16_TO_F32
#define POPGRAPH_F32_TO_F16_16 POPGRAPH_PLAIN_F32_TO_F16
#endif

/*
 * AVX512-BF16 rounds by an instruction, but makes zeros of subnormals: where there are some, their
 * lanes take `(wide + 0x7fff + odd) >> 16`. The jump is hidden from compilers, which would keep
 * sums in memory to be ready for it.
 */
#define POPGRAPH_PLAIN_F32_TO_BF16(F, U, H, x) \
    __builtin_convertvector(POPGRAPH_F32_TO_BF16(F, U, x), H)
#if defined(__AVX512BF16__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define POPGRAPH_ROUND_TO_BF16(F, U, H, x) __extension__ ({ \
    const F number = (x); \
    H half; \
    U wide, odd; \
    unsigned short small; \
    __asm__("vcvtneps2bf16 %[number], %[half]\n" \
            "vfpclassps $0x20, %[number], %[small]\n" \
            "kortestw %[small], %[small]\n" \
            "jz 1f\n" \
            "vpternlogd $0xff, %[wide], %[wide], %[wide]\n" \
            "vpsrld $17, %[wide], %[wide]\n" \
            "vpaddd %[number], %[wide], %[wide]\n" \
            "vpslld $15, %[number], %[odd]\n" \
            "vpsrld $31, %[odd], %[odd]\n" \
            "vpaddd %[odd], %[wide], %[wide]\n" \
            "vpsrld $16, %[wide], %[wide]\n" \
            "vpmovdw %[wide], %[half]%{%[small]%}\n" \
            "1:" \
            : [half] "=&v"(half), [small] "=&Yk"(small), [wide] "=&v"(wide), [odd] "=&v"(odd) \
            : [number] "v"(number) \
            : "cc"); \
    half; \
})
#define POPGRAPH_F32_TO_BF16_16 POPGRAPH_ROUND_TO_BF16
#define POPGRAPH_F32_TO_BF16_8 POPGRAPH_ROUND_TO_BF16
#else
#define POPGRAPH_F32_TO_BF16_16 POPGRAPH_PLAIN_F32_TO_BF16
#define POPGRAPH_F32_TO_BF16_8 POPGRAPH_PLAIN_F32_TO_BF16
#endif

/*
 * The nearest bf16, left in f32: without conversions there and back. The sum of a NaN may carry into
 * its sign, so lanes with NaN become another one.
 */
#define POPGRAPH_PLAIN_NEAREST_BF16(F, U, x) __extension__ ({ \
    const F number = (x); \
    const U wide = (U)number; \
    (F)(((wide + 0x7fff + ((wide >> 16) & 1)) | (U)(number != number)) & 0xffff0000u); \
})
#define POPGRAPH_NEAREST_BF16_8 POPGRAPH_PLAIN_NEAREST_BF16
#if defined(__AVX512F__) && !defined(__clang__)
/* Five instructions: GCC takes seven. */
#define POPGRAPH_NEAREST_BF16_16(F, U, x) __extension__ ({ \
    typedef popgraph_i32x16 I; \
    const F number = (x); \
    const I wide = (I)number, none = {0}, below = (I)((U)wide + 0x7fff); \
    const short odd = __builtin_ia32_ptestmd512(wide, none + 0x10000, (short)-1); \
    const F sum = (F)__builtin_ia32_paddd512_mask(wide, none + 0x8000, below, odd); \
    (F)((I)__builtin_ia32_fixupimmps512_mask(sum, number, none + 0x22, 0, (short)-1, 4) & -0x10000); \
})
#else
#define POPGRAPH_NEAREST_BF16_16 POPGRAPH_PLAIN_NEAREST_BF16
#endif

/*
 * The same if the lower half of any NaN is 0: sums do not carry then. WebAssembly does not define
 * the bits of a NaN that it computes.
 */
#if defined(__wasm__)
#define POPGRAPH_PLAIN_NEAREST_BF16_NO_CARRY POPGRAPH_PLAIN_NEAREST_BF16
#else
#define POPGRAPH_PLAIN_NEAREST_BF16_NO_CARRY(F, U, x) __extension__ ({ \
    const U wide = (U)(x); \
    (F)((wide + 0x7fff + ((wide >> 16) & 1)) & 0xffff0000u); \
})
#endif
#define POPGRAPH_NEAREST_BF16_NO_CARRY_8 POPGRAPH_PLAIN_NEAREST_BF16_NO_CARRY
#if defined(__AVX512F__) && !defined(__clang__)
#define POPGRAPH_NEAREST_BF16_NO_CARRY_16(F, U, x) __extension__ ({ \
    typedef popgraph_i32x16 I; \
    const I wide = (I)(x), none = {0}, below = (I)((U)wide + 0x7fff); \
    const short odd = __builtin_ia32_ptestmd512(wide, none + 0x10000, (short)-1); \
    (F)(__builtin_ia32_paddd512_mask(wide, none + 0x8000, below, odd) & -0x10000); \
})
#else
#define POPGRAPH_NEAREST_BF16_NO_CARRY_16 POPGRAPH_PLAIN_NEAREST_BF16_NO_CARRY
#endif

/* A bf16 that is in f32. */
#define POPGRAPH_EXACT_F32_TO_BF16(U, H, x) __builtin_convertvector((U)(x) >> 16, H)

/*
 * Integers of 8 or 16 bits in 32, T being a vector of these and H one of 16 bits: GCC takes four
 * instructions for a conversion of vectors where the target has one.
 */
#define POPGRAPH_PLAIN_8_TO_32(T, H, x) __builtin_convertvector(__builtin_convertvector(x, H), T)
#define POPGRAPH_PLAIN_16_TO_32(T, H, x) __builtin_convertvector(x, T)

#if defined(__AVX2__) && !defined(__clang__)
typedef long long popgraph_i64x2 __attribute__((vector_size(16)));
#define POPGRAPH_LOW_BYTES(x) ((popgraph_i8x16)(popgraph_i64x2){(long long)(x), 0})
#define POPGRAPH_U8_TO_U32_8(T, H, x) ((T)__builtin_ia32_pmovzxbd256(POPGRAPH_LOW_BYTES(x)))
#define POPGRAPH_I8_TO_I32_8(T, H, x) ((T)__builtin_ia32_pmovsxbd256(POPGRAPH_LOW_BYTES(x)))
#define POPGRAPH_U16_TO_U32_8(T, H, x) ((T)__builtin_ia32_pmovzxwd256((popgraph_i16x8)(x)))
#define POPGRAPH_I16_TO_I32_8(T, H, x) ((T)__builtin_ia32_pmovsxwd256((popgraph_i16x8)(x)))
#else
#define POPGRAPH_U8_TO_U32_8 POPGRAPH_PLAIN_8_TO_32
#define POPGRAPH_I8_TO_I32_8 POPGRAPH_PLAIN_8_TO_32
#define POPGRAPH_U16_TO_U32_8 POPGRAPH_PLAIN_16_TO_32
#define POPGRAPH_I16_TO_I32_8 POPGRAPH_PLAIN_16_TO_32
#endif

#if defined(__AVX512F__) && !defined(__clang__)
typedef int popgraph_i32x16 __attribute__((vector_size(64)));
#define POPGRAPH_16_LANES(T, builtin, kind, x) \
    ((T)builtin((kind)(x), (popgraph_i32x16){0}, (short)-1))
#define POPGRAPH_U8_TO_U32_16(T, H, x) \
    POPGRAPH_16_LANES(T, __builtin_ia32_pmovzxbd512_mask, popgraph_i8x16, x)
#define POPGRAPH_I8_TO_I32_16(T, H, x) \
    POPGRAPH_16_LANES(T, __builtin_ia32_pmovsxbd512_mask, popgraph_i8x16, x)
#define POPGRAPH_U16_TO_U32_16(T, H, x) \
    POPGRAPH_16_LANES(T, __builtin_ia32_pmovzxwd512_mask, popgraph_i16x16, x)
#define POPGRAPH_I16_TO_I32_16(T, H, x) \
    POPGRAPH_16_LANES(T, __builtin_ia32_pmovsxwd512_mask, popgraph_i16x16, x)
#else
#define POPGRAPH_U8_TO_U32_16 POPGRAPH_PLAIN_8_TO_32
#define POPGRAPH_I8_TO_I32_16 POPGRAPH_PLAIN_8_TO_32
#define POPGRAPH_U16_TO_U32_16 POPGRAPH_PLAIN_16_TO_32
#define POPGRAPH_I16_TO_I32_16 POPGRAPH_PLAIN_16_TO_32
#endif

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

/*
 * Four bytes on a Cortex-M4 and later: an instruction extends two of them, another one multiplies
 * pairs. Values that several words need are computed once, so a tile of 2 x 2 sums takes 20
 * instructions for 16 products. Assembly rotates in the instruction that extends.
 */
#if defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#define POPGRAPH_EXTEND(name, word) __extension__ ({ \
    i32 pair; \
    __asm__(name " %0, %1, ror #8" : "=r"(pair) : "r"(word)); \
    pair; \
})
#define POPGRAPH_DOT_U8I8_1(T, U, a, b, c) \
    ((T)__smlad(POPGRAPH_EXTEND("uxtb16", a), POPGRAPH_EXTEND("sxtb16", b), \
        __smlad((i32)((U)(a) & 0x00FF00FFu), __sxtb16(b), c)))
#define POPGRAPH_DOT_I8I8_1(T, U, a, b, c) \
    ((T)__smlad(POPGRAPH_EXTEND("sxtb16", a), POPGRAPH_EXTEND("sxtb16", b), \
        __smlad(__sxtb16(a), __sxtb16(b), c)))
#else
#define POPGRAPH_DOT_U8I8_1 POPGRAPH_PLAIN_DOT_U8I8
#define POPGRAPH_DOT_I8I8_1 POPGRAPH_PLAIN_DOT_I8I8
#endif

#if defined(__AVX512VNNI__) && POPGRAPH_HAS(__builtin_ia32_vpdpbusd_v16si)
#define POPGRAPH_DOT_U8I8_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd_v16si(c, (T)(a), (T)(b)))
#elif defined(__AVX512VNNI__)
#define POPGRAPH_DOT_U8I8_16(T, U, a, b, c) ((T)__builtin_ia32_vpdpbusd512(c, (T)(a), (T)(b)))
#else
#define POPGRAPH_DOT_U8I8_16 POPGRAPH_PLAIN_DOT_U8I8
#endif
/* Both with a sign: Arm has an instruction for vectors of 16 bytes. */
#define POPGRAPH_PLAIN_DOT_I8I8(T, U, a, b, c) __extension__ ({ \
    const U x = (U)(a), y = (U)(b); \
    U sum = (U)(c); \
    for (int place = 0; place < 32; place += 8) \
        sum += (U)((T)(x << (24 - place)) >> 24) * (U)((T)(y << (24 - place)) >> 24); \
    (T)sum; \
})
#if defined(__ARM_FEATURE_DOTPROD)
#define POPGRAPH_DOT_I8I8_4(T, U, a, b, c) __extension__ ({ \
    T sum = (c); \
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b)); \
    sum; \
})
#else
#define POPGRAPH_DOT_I8I8_4 POPGRAPH_PLAIN_DOT_I8I8
#endif
#define POPGRAPH_DOT_I8I8_8 POPGRAPH_PLAIN_DOT_I8I8
#define POPGRAPH_DOT_I8I8_16 POPGRAPH_PLAIN_DOT_I8I8

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
#define POPGRAPH_DOT_U8I7_4(T, U, a, b, c) POPGRAPH_DOT_I16_4(T, U, \
    __builtin_ia32_pmaddubsw128((popgraph_i8x16)(a), (popgraph_i8x16)(b)), POPGRAPH_ONES(T), c)
#else
#define POPGRAPH_DOT_U8I7_4 POPGRAPH_PLAIN_DOT_U8I8
#endif
#if defined(__AVX2__)
#define POPGRAPH_DOT_U8I7_8(T, U, a, b, c) POPGRAPH_DOT_I16_8(T, U, \
    __builtin_ia32_pmaddubsw256((popgraph_i8x32)(a), (popgraph_i8x32)(b)), POPGRAPH_ONES(T), c)
#else
#define POPGRAPH_DOT_U8I7_8 POPGRAPH_PLAIN_DOT_U8I8
#endif
#if defined(__AVX512BW__) && !defined(__AVX512VNNI__)
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

/*
 * The same with a sign on the left, and no -128 on the right: the sign of each left number moves to
 * the right one. Two products of 128 and 127 fit 16 bits.
 */
#define POPGRAPH_PLAIN_DOT_I8I8_127 POPGRAPH_PLAIN_DOT_I8I8
#if defined(__SSSE3__)
#define POPGRAPH_DOT_I8I8_127_4(T, U, a, b, c) __extension__ ({ \
    const popgraph_i8x16 x = (popgraph_i8x16)(a), y = (popgraph_i8x16)(b); \
    POPGRAPH_DOT_U8I7_4(T, U, __builtin_ia32_psignb128(x, x), __builtin_ia32_psignb128(y, x), c); \
})
#else
#define POPGRAPH_DOT_I8I8_127_4 POPGRAPH_PLAIN_DOT_I8I8
#endif
#if defined(__AVX2__)
#define POPGRAPH_DOT_I8I8_127_8(T, U, a, b, c) __extension__ ({ \
    const popgraph_i8x32 x = (popgraph_i8x32)(a), y = (popgraph_i8x32)(b); \
    POPGRAPH_DOT_U8I7_8(T, U, __builtin_ia32_psignb256(x, x), __builtin_ia32_psignb256(y, x), c); \
})
#else
#define POPGRAPH_DOT_I8I8_127_8 POPGRAPH_PLAIN_DOT_I8I8
#endif
#define POPGRAPH_DOT_I8I8_127_16 POPGRAPH_PLAIN_DOT_I8I8

/*
 * The same in 16 bits: a word of two totals, to each of which two products are added. Processors
 * saturate the sum of two products; totals wrap.
 */
#define POPGRAPH_SATURATE(T, value) __extension__ ({ \
    const T wide = (value), above = wide - 32767; \
    const T capped = wide - (above & ~(above >> 31)), below = capped + 32768; \
    capped - (below & (below >> 31)); \
})
#define POPGRAPH_PLAIN_DOT_U8I8_I16(T, U, a, b, c) __extension__ ({ \
    const T x = (a), y = (b); \
    const U total = (U)(c); \
    const T low = POPGRAPH_SATURATE(T, (x & 255) * ((T)((U)y << 24) >> 24) + \
        ((x >> 8) & 255) * ((T)((U)y << 16) >> 24)); \
    const T high = POPGRAPH_SATURATE(T, ((x >> 16) & 255) * ((T)((U)y << 8) >> 24) + \
        ((x >> 24) & 255) * (y >> 24)); \
    (T)(((total + (U)low) & 0xFFFFu) | ((total >> 16) + (U)high) << 16); \
})
#if defined(__SSSE3__)
#define POPGRAPH_DOT_U8I8_I16_4(T, U, a, b, c) ((T)((popgraph_u16x8)(c) + \
    (popgraph_u16x8)__builtin_ia32_pmaddubsw128((popgraph_i8x16)(a), (popgraph_i8x16)(b))))
#else
#define POPGRAPH_DOT_U8I8_I16_4 POPGRAPH_PLAIN_DOT_U8I8_I16
#endif
#if defined(__AVX2__) && !defined(__clang__)
/* GCC would copy totals from register to register, and run out of these. */
#define POPGRAPH_DOT_U8I8_I16_8(T, U, a, b, c) __extension__ ({ \
    T sum = (c); \
    __asm__("vpaddw %1, %0, %0" : "+x"(sum) \
        : "x"(__builtin_ia32_pmaddubsw256((popgraph_i8x32)(a), (popgraph_i8x32)(b)))); \
    sum; \
})
#elif defined(__AVX2__)
#define POPGRAPH_DOT_U8I8_I16_8(T, U, a, b, c) ((T)((popgraph_u16x16)(c) + \
    (popgraph_u16x16)__builtin_ia32_pmaddubsw256((popgraph_i8x32)(a), (popgraph_i8x32)(b))))
#else
#define POPGRAPH_DOT_U8I8_I16_8 POPGRAPH_PLAIN_DOT_U8I8_I16
#endif
#define POPGRAPH_DOT_U8I8_I16_16 POPGRAPH_PLAIN_DOT_U8I8_I16

/* Both 16-bit totals of a word, which wrap where those of an offset are added to them. */
#define POPGRAPH_PLAIN_SUM_PAIRS(T, U, a, b) __extension__ ({ \
    const U x = (U)(a), y = (U)(b); \
    ((T)((x + y) << 16) >> 16) + ((T)(((x >> 16) + (y >> 16)) << 16) >> 16); \
})
#if defined(__SSE2__)
#define POPGRAPH_SUM_PAIRS_4(T, U, a, b) ((T)__builtin_ia32_pmaddwd128( \
    (popgraph_i16x8)((popgraph_u16x8)(a) + (popgraph_u16x8)(b)), (popgraph_i16x8)POPGRAPH_ONES(T)))
#else
#define POPGRAPH_SUM_PAIRS_4 POPGRAPH_PLAIN_SUM_PAIRS
#endif
#if defined(__AVX2__)
#define POPGRAPH_SUM_PAIRS_8(T, U, a, b) ((T)__builtin_ia32_pmaddwd256( \
    (popgraph_i16x16)((popgraph_u16x16)(a) + (popgraph_u16x16)(b)), \
    (popgraph_i16x16)POPGRAPH_ONES(T)))
#else
#define POPGRAPH_SUM_PAIRS_8 POPGRAPH_PLAIN_SUM_PAIRS
#endif
#define POPGRAPH_SUM_PAIRS_16 POPGRAPH_PLAIN_SUM_PAIRS

/*
 * The same of two bf16, whose products are added to an f32 or a vector of them. AVX512-BF16 has an
 * instruction, which compilers name differently.
 */
#define POPGRAPH_PLAIN_DOT_BF16(T, U, a, b, c) __extension__ ({ \
    const U x = (U)(a), y = (U)(b); \
    const U halves[4] = {x << 16, y << 16, x >> 16 << 16, y >> 16 << 16}; \
    T numbers[4]; \
    __builtin_memcpy(numbers, halves, sizeof numbers); \
    (c) + numbers[0] * numbers[1] + numbers[2] * numbers[3]; \
})
#define POPGRAPH_DOT_BF16(T, U, a, b, c) __extension__ ({ \
    T sum = (c); \
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); \
    sum; \
})
#if defined(__AVX512BF16__)
#define POPGRAPH_DOT_BF16_16 POPGRAPH_DOT_BF16
#else
#define POPGRAPH_DOT_BF16_16 POPGRAPH_PLAIN_DOT_BF16
#endif
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
#define POPGRAPH_DOT_BF16_8 POPGRAPH_DOT_BF16
#define POPGRAPH_DOT_BF16_4 POPGRAPH_DOT_BF16
#else
#define POPGRAPH_DOT_BF16_8 POPGRAPH_PLAIN_DOT_BF16
#define POPGRAPH_DOT_BF16_4 POPGRAPH_PLAIN_DOT_BF16
#endif

/* One of sixteen numbers for each lane, chosen by the lowest bits of an index. */
#if defined(__clang__) && defined(__AVX512F__)
#define POPGRAPH_PICK_16(table, index) __builtin_ia32_permvarsf512(table, index)
#elif defined(__clang__)
#define POPGRAPH_PICK_16(table, index) __extension__ ({ \
    __typeof__(table) picked = table; \
    for (int lane = 0; lane < 16; ++lane) picked[lane] = (table)[(index)[lane] & 15]; \
    picked; \
})
#else
#define POPGRAPH_PICK_16(table, index) __builtin_shuffle(table, index)
#endif

#endif
