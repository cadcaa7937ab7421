// Finding the few entries of a row that matter, in one pass over it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "vector.h"

namespace sharmix {

// The number of entries above a threshold.
template <class T> int64_t count_above(const T* row, int64_t classes, T threshold) {
    int64_t count = 0;
    for (int64_t start = 0; start < classes; start += 4096) {
        int32_t some = 0;  // as wide as a float
        for (int64_t i = start; i < std::min(classes, start + 4096); ++i) some += row[i] > threshold;
        count += some;
    }
    return count;
}

// Entries of a row with their places in it: those at which the row they were found in is above a threshold.
template <class T> struct Entries {
    const T* value;
    const int32_t* place;
    int64_t count;
    T threshold;
};

// The same with room for all entries of a row.
template <class T> struct List {
    explicit List(int64_t classes)
        : value(new T[padded(classes) + 2 * PADDING]), place(new int32_t[padded(classes) + PADDING]) {}

    std::unique_ptr<T[]> value;
    std::unique_ptr<int32_t[]> place;
    int64_t count = 0;
    T threshold = 0;

    Entries<T> entries() const { return {value.get(), place.get(), count, threshold}; }

    // Drops what is not above the threshold, if that is enough to be worth the while.
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

// The entries of a row at the places of a list, and back.

template <class T> void gather(const T* row, const List<T>& list, T* entries, int64_t classes) {
    if (list.count == classes) return void(std::copy_n(row, classes, entries));
    for (int64_t i = 0; i < list.count; ++i) entries[i] = row[list.place[i]];
}

template <class T> void scatter(const Entries<T>& entries, T* row, int64_t classes) {
    if (entries.count == classes) return void(std::copy_n(entries.value, classes, row));
    for (int64_t i = 0; i < entries.count; ++i) row[entries.place[i]] = entries.value[i];
}

// The same for so many entries that whole vectors are moved; `keys` is the row that they were found in. Scattered, the row
// has 0 at the other places.

#ifdef __AVX512F__
template <class T> bool is_crowded(const Entries<T>& entries, int64_t classes) {
    return sizeof(T) == sizeof(float) && entries.count > classes / 8;
}
#else
template <class T> bool is_crowded(const Entries<T>&, int64_t) { return false; }
#endif

template <class T> void gather_crowded(const T* keys, T threshold, const T* row, T* entries, int64_t classes) {
    for (int64_t i = 0; i < classes; ++i) {
        *entries = row[i];
        entries += keys[i] > threshold;
    }
}

template <class T> void scatter_crowded(const T* keys, Entries<T> entries, T* row, int64_t classes) {
    for (int64_t i = 0; i < classes; ++i) {
        row[i] = keys[i] > entries.threshold ? *entries.value : T(0);
        entries.value += keys[i] > entries.threshold;
    }
}

#ifdef __AVX512F__
inline __mmask16 which_above(const float* keys, float threshold) {
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(keys), _mm512_set1_ps(threshold), _CMP_GT_OQ);
}

inline void gather_crowded(const float* keys, float threshold, const float* row, float* entries, int64_t classes) {
    int64_t start = 0;
    for (; start + 16 <= classes; start += 16) {
        const __mmask16 kept = which_above(keys + start, threshold);
        _mm512_storeu_ps(entries, _mm512_maskz_compress_ps(kept, _mm512_loadu_ps(row + start)));
        entries += __builtin_popcount(kept);
    }
    gather_crowded<float>(keys + start, threshold, row + start, entries, classes - start);
}

inline void scatter_crowded(const float* keys, Entries<float> entries, float* row, int64_t classes) {
    int64_t start = 0;
    for (; start + 16 <= classes; start += 16) {
        const __mmask16 kept = which_above(keys + start, entries.threshold);
        _mm512_storeu_ps(row + start, _mm512_maskz_expand_ps(kept, _mm512_loadu_ps(entries.value)));
        entries.value += __builtin_popcount(kept);
    }
    scatter_crowded<float>(keys + start, entries, row + start, classes - start);
}
#endif

}  // namespace sharmix
