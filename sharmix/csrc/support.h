// Finds the few entries of a row that matter, in one pass over the row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "vector.h"

namespace sharmix {

constexpr int64_t CROWD = 256;  // a row with more entries is better worked on alone

// The number of entries above a threshold.
template <class T> int64_t count_above(const T* row, int64_t classes, T threshold) {
    int64_t count = 0;
    for (int64_t start = 0; start < classes; start += 4096) {
        int32_t some = 0;  // as wide as a float, so that the compiler uses vectors
        for (int64_t i = start; i < std::min(classes, start + 4096); ++i) some += row[i] > threshold;
        count += some;
    }
    return count;
}

// Some entries of a row and their places. The row in which they were found is above the threshold there.
template <class T> struct Entries {
    const T* value;
    const int32_t* place;
    int64_t count;
    T threshold;
};

// A list with room for all entries of a row.
template <class T> struct List {
    explicit List(int64_t classes)
        : value(new T[padded(classes) + 2 * PADDING]), place(new int32_t[padded(classes) + PADDING]) {}

    std::unique_ptr<T[]> value;
    std::unique_ptr<int32_t[]> place;
    int64_t count = 0;
    T threshold = 0;

    Entries<T> entries() const { return {value.get(), place.get(), count, threshold}; }

    // Drops the entries that are not above `least`, if there are enough of them to save time.
    void keep(T least) {
        if (count_above(value.get(), count, least) >= count - count / 8) return;
        threshold = least;
        int64_t kept = 0;
        for (int64_t i = 0; i < count; ++i) {
            value[kept] = value[i];
            place[kept] = place[i];
            kept += value[i] > threshold;
        }
        count = kept;
        pad(-std::numeric_limits<T>::infinity());
    }

    // Fills the last vector up with `filler`.
    void pad(T filler) {
        for (int64_t i = count; i < padded(count); ++i) value[i] = filler;
    }
};

// The largest entry, or NaN if there is a NaN. `large` gets two vectors of different large entries.
template <class T> inline T maximum(const T* row, int64_t classes, List<T>& large) {
    const T nothing = -std::numeric_limits<T>::infinity();
    Vector<T> top[2] = {all(nothing), all(nothing)}, undefined = {};
    int64_t i = 0;
    for (; i + 2 * LANES<T> <= classes; i += 2 * LANES<T>) {
        for (int half = 0; half < 2; ++half) {
            const Vector<T> next = load<T>(row + i + half * LANES<T>);
            top[half] = next > top[half] ? next : top[half];
            undefined = next == next ? undefined : next;
        }
    }
    large.count = 2 * LANES<T>;
    for (int half = 0; half < 2; ++half) store(large.value.get() + half * LANES<T>, top[half]);
    T result = largest<T>(top[0] > top[1] ? top[0] : top[1]), doubt = sum<T>(undefined);
    for (T* lane = large.value.get(); i < classes; ++i, ++lane) {
        *lane = row[i] > *lane ? row[i] : *lane;
        result = row[i] > result ? row[i] : result;
        doubt = row[i] == row[i] ? doubt : row[i];
    }
    return doubt == doubt ? result : doubt;
}

// AVX-512 compresses a vector to the entries above the threshold. It saves two fifths of the map's forward pass at 64 x 1000.
#ifdef __AVX512F__
constexpr __mmask16 WHOLE = 0xffff;

inline __mmask16 first_lanes(int64_t count) { return __mmask16((1 << count) - 1); }

// Appends the entries above the threshold among 16 entries of a row. `some` marks the entries that the row has.
INLINE int64_t append(const float* row, int64_t start, __mmask16 some, float threshold, float* value, int32_t* place) {
    const __m512 values = _mm512_maskz_loadu_ps(some, row + start);
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(some, values, _mm512_set1_ps(threshold), _CMP_GT_OQ);
    if (!kept) return 0;
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_add_epi32(_mm512_set1_epi32(int32_t(start)), lanes);
    _mm512_storeu_ps(value, _mm512_maskz_compress_ps(kept, values));
    _mm512_storeu_si512(place, _mm512_maskz_compress_epi32(kept, places));
    return __builtin_popcount(kept);
}

// If few entries are above the threshold, the processor cannot predict which vectors hold them. So these vectors are
// listed first, without branches. It saves a fifth of the map's forward pass at 256 x 10000.
inline int64_t append_few(const float* row, int64_t start, int64_t stop, float threshold, float* value, int32_t* place) {
    constexpr int64_t LISTED = 64;
    int32_t starts[LISTED];
    int64_t count = 0;
    while (start < stop) {
        int64_t some = 0;
        for (const int64_t end = std::min(stop, start + 16 * LISTED); start < end; start += 16) {
            starts[some] = int32_t(start);
            some += _mm512_cmp_ps_mask(_mm512_loadu_ps(row + start), _mm512_set1_ps(threshold), _CMP_GT_OQ) != 0;
        }
        for (int64_t i = 0; i < some; ++i) count += append(row, starts[i], WHOLE, threshold, value + count, place + count);
    }
    return count;
}

inline void collect(const float* row, int64_t classes, float threshold, List<float>& list) {
    constexpr int64_t PROBE = 128;  // entries that tell whether there are few
    float* value = list.value.get();
    int32_t* place = list.place.get();
    const int64_t whole = classes / 16 * 16;
    int64_t count = 0, start = 0;
    for (; start < whole; start += 16) {
        if (start == PROBE && count < PROBE / 8) break;
        count += append(row, start, WHOLE, threshold, value + count, place + count);
    }
    if (start < whole) count += append_few(row, start, whole, threshold, value + count, place + count);
    if (whole < classes) count += append(row, whole, first_lanes(classes - whole), threshold, value + count, place + count);
    list.count = count;
    list.threshold = threshold;
}
#endif

// The entries of a row above a threshold.
template <class T> inline void collect(const T* row, int64_t classes, T threshold, List<T>& list) {
    int64_t count = 0;
    for (int64_t start = 0; start < classes; start += PADDING) {
        const int64_t stop = start + PADDING < classes ? start + PADDING : classes;
        int32_t any = 0;
        for (int64_t i = start; i < stop; ++i) any |= row[i] > threshold;
        if (!any) continue;
        for (int64_t i = start; i < stop; ++i) {
            list.value[count] = row[i];
            list.place[count] = int32_t(i);
            count += row[i] > threshold;
        }
    }
    list.count = count;
    list.threshold = threshold;
}

// gather reads the entries of a row at the places of others; scatter writes them back.

template <class T> void gather(const T* row, const Entries<T>& others, T* entries, int64_t classes) {
    if (others.count == classes) return void(std::copy_n(row, classes, entries));
    for (int64_t i = 0; i < others.count; ++i) entries[i] = row[others.place[i]];
}

template <class T> void scatter(const Entries<T>& entries, T* row, int64_t classes) {
    if (entries.count == classes) return void(std::copy_n(entries.value, classes, row));
    for (int64_t i = 0; i < entries.count; ++i) row[entries.place[i]] = entries.value[i];
}

// gather and scatter for a crowded row, vector by vector. `keys` is the row in which the entries were found. scatter_crowded
// writes 0 to the other places. It saves a quarter of the map's backward pass at 64 x 1000 dense.
#ifdef __AVX512F__
template <class T> bool is_crowded(const Entries<T>& entries, int64_t classes) {
    return sizeof(T) == sizeof(float) && entries.count > classes / 8;
}

// Calls move(start, some, kept, count) for each 16 entries: `some` marks the entries that the row has, `kept` the entries
// above the threshold, and `count` is the number of entries kept before.
template <class Move> INLINE void for_crowd(const float* keys, float threshold, int64_t classes, Move move) {
    int64_t start = 0, count = 0;
    const auto next = [&](__mmask16 some) {
        const __m512 key = _mm512_maskz_loadu_ps(some, keys + start);
        const __mmask16 kept = _mm512_mask_cmp_ps_mask(some, key, _mm512_set1_ps(threshold), _CMP_GT_OQ);
        move(start, some, kept, count);
        count += __builtin_popcount(kept);
    };
    for (; start + 16 <= classes; start += 16) next(WHOLE);
    if (start < classes) next(first_lanes(classes - start));
}

inline void gather_crowded(const float* keys, const Entries<float>& others, const float* row, float* entries, int64_t classes) {
    for_crowd(keys, others.threshold, classes, [&](int64_t start, __mmask16 some, __mmask16 kept, int64_t count) {
        _mm512_storeu_ps(entries + count, _mm512_maskz_compress_ps(kept, _mm512_maskz_loadu_ps(some, row + start)));
    });
}

inline void scatter_crowded(const float* keys, const Entries<float>& entries, float* row, int64_t classes) {
    for_crowd(keys, entries.threshold, classes, [&](int64_t start, __mmask16 some, __mmask16 kept, int64_t count) {
        const __m512 values = _mm512_maskz_expand_ps(kept, _mm512_loadu_ps(entries.value + count));
        _mm512_mask_storeu_ps(row + start, some, values);
    });
}
#else
template <class T> bool is_crowded(const Entries<T>&, int64_t) { return false; }
#endif

// Other rows are never crowded.
template <class T> void gather_crowded(const T*, const Entries<T>&, const T*, T*, int64_t) {}
template <class T> void scatter_crowded(const T*, const Entries<T>&, T*, int64_t) {}

}  // namespace sharmix
