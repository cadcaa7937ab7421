// Finding the few entries of a row that matter, in one pass over it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "vector.h"

namespace sharmix {

// Entries of a row with their places in it, room for all of them.
template <class T> struct List {
    explicit List(int64_t classes)
        : value(new T[padded(classes) + 2 * PADDING]), place(new int32_t[padded(classes) + PADDING]) {}

    std::unique_ptr<T[]> value;
    std::unique_ptr<int32_t[]> place;
    int64_t count = 0;

    // Drops what is not above the threshold, if that is enough to be worth the while.
    void keep(T threshold) {
        int64_t outside = 0;
        for (int64_t i = 0; i < count; ++i) outside += !(value[i] > threshold);
        if (outside < count / 8) return;
        int64_t kept = 0;
        for (int64_t i = 0; i < count; ++i) {
            value[kept] = value[i];
            place[kept] = place[i];
            kept += value[i] > threshold;
        }
        count = kept;
        pad(-std::numeric_limits<T>::infinity());
    }

    // `filler` up to the end of the last vector.
    void pad(T filler) {
        for (int64_t i = count; i < padded(count); ++i) value[i] = filler;
    }
};

// The largest entry, NaN if there is a NaN; `largest` gets two vectors of large entries, each a different one.
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

#ifdef __AVX512F__
// Appends those of 16 entries of a row that are above the threshold; `some` tells which of the 16 the row has.
inline int64_t append(const float* row, int64_t start, __mmask16 some, float threshold, float* value, int32_t* place) {
    const __m512 values = _mm512_maskz_loadu_ps(some, row + start);
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(some, values, _mm512_set1_ps(threshold), _CMP_GT_OQ);
    if (!kept) return 0;
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_add_epi32(_mm512_set1_epi32(int32_t(start)), lanes);
    _mm512_storeu_ps(value, _mm512_maskz_compress_ps(kept, values));
    _mm512_storeu_si512(place, _mm512_maskz_compress_epi32(kept, places));
    return __builtin_popcount(kept);
}

inline void collect(const float* row, int64_t classes, float threshold, List<float>& list) {
    float* value = list.value.get();
    int32_t* place = list.place.get();
    int64_t count = 0, start = 0;
    for (; start + 16 <= classes; start += 16)
        count += append(row, start, 0xffff, threshold, value + count, place + count);
    if (start < classes)
        count += append(row, start, __mmask16((1 << (classes - start)) - 1), threshold, value + count, place + count);
    list.count = count;
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
}

// The entries of a row at the places of a list, and back.

template <class T> void gather(const T* row, const List<T>& list, T* entries, int64_t classes) {
    if (list.count == classes) return void(std::copy_n(row, classes, entries));
    for (int64_t i = 0; i < list.count; ++i) entries[i] = row[list.place[i]];
}

template <class T> void scatter(const T* entries, const List<T>& list, T* row, int64_t classes) {
    if (list.count == classes) return void(std::copy_n(entries, classes, row));
    for (int64_t i = 0; i < list.count; ++i) row[list.place[i]] = entries[i];
}

}  // namespace sharmix
