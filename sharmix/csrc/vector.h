// A processor register full of numbers, as the compiler's own vector type: + - * / < ?: work on all lanes.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

// The compiler finds these functions too long to inline. A call would pass their vectors through memory.
#define INLINE inline __attribute__((always_inline))

namespace sharmix {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef float HalfFloats __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint32_t FloatBits __attribute__((vector_size(VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t DoubleBits __attribute__((vector_size(VECTOR_BYTES)));

template <class Real> struct VectorOf;
template <> struct VectorOf<float> { using type = Floats; };
template <> struct VectorOf<double> { using type = Doubles; };
template <class Real> using Vector = typename VectorOf<Real>::type;

// The number in each lane.
template <class S> struct LaneOf { using type = S; };
template <> struct LaneOf<Floats> { using type = float; };
template <> struct LaneOf<Doubles> { using type = double; };
template <class S> using RealOf = typename LaneOf<S>::type;

template <class Real> constexpr int64_t LANES = VECTOR_BYTES / sizeof(Real);
constexpr int64_t PADDING = LANES<float>;  // lists are filled up to whole vectors of either kind

constexpr int64_t padded(int64_t count) { return (count + PADDING - 1) / PADDING * PADDING; }

// One vector of Real from the numbers at an address, which are converted to Real.
template <class Real, class T> inline Vector<Real> load(const T* address) {
    if constexpr (sizeof(Real) == sizeof(T)) {
        Vector<Real> vector;
        std::memcpy(&vector, address, sizeof vector);
        return vector;
    } else {
        static_assert(sizeof(Real) > sizeof(T));
        HalfFloats half;
        std::memcpy(&half, address, sizeof half);
        return __builtin_convertvector(half, Doubles);
    }
}

template <class Real> inline void store(Real* address, Vector<Real> vector) {
    std::memcpy(address, &vector, sizeof vector);
}

// Stores the numbers of a vector, rounded to T.
template <class T, class V> inline void store_as(T* address, V vector) {
    if constexpr (sizeof(T) == sizeof(vector[0])) {
        std::memcpy(address, &vector, sizeof vector);
    } else {
        const HalfFloats half = __builtin_convertvector(vector, HalfFloats);
        std::memcpy(address, &half, sizeof half);
    }
}

inline Doubles doubles(Doubles vector) { return vector; }

// The two halves of the vector, added in double precision.
inline Doubles doubles(Floats vector) {
    HalfFloats half[2];
    std::memcpy(half, &vector, sizeof vector);
    return __builtin_convertvector(half[0], Doubles) + __builtin_convertvector(half[1], Doubles);
}

template <class Real> inline Vector<Real> all(Real value) { return Vector<Real>{} + value; }

// Whether a comparison holds in any lane.
template <class Mask> inline bool any(Mask mask) {
#ifdef __AVX512F__
    __m512i bits;
    std::memcpy(&bits, &mask, sizeof mask);
    return _mm512_test_epi64_mask(bits, bits);
#endif
    uint64_t word[VECTOR_BYTES / 8], found = 0;
    std::memcpy(word, &mask, sizeof mask);
    for (uint64_t part : word) found |= part;
    return found;
}

// Combines the lanes two by two. The compiler knows the number of lanes of each step.
template <int Lanes, class Real, class Both> INLINE Real fold(const Real* lane, Both both) {
    if constexpr (Lanes == 1) {
        return *lane;
    } else {
        Real half[Lanes / 2];
        for (int i = 0; i < Lanes / 2; ++i) half[i] = both(lane[i], lane[i + Lanes / 2]);
        return fold<Lanes / 2>(half, both);
    }
}

template <class Real, class Both> INLINE Real fold(Vector<Real> vector, Both both) {
    Real lane[LANES<Real>];
    store(lane, vector);
    return fold<LANES<Real>>(lane, both);
}

template <class Real> inline Real sum(Vector<Real> vector) {
    return fold<Real>(vector, [](Real x, Real y) { return x + y; });
}

template <class Real> inline Real largest(Vector<Real> vector) {
    return fold<Real>(vector, [](Real x, Real y) { return x < y ? y : x; });
}

}  // namespace sharmix
