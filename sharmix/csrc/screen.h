// The classes of an output layer that can be in the support, by a product in bfloat16: docs/math.md, section 9.
#pragma once

#include <vector>

#include "rows.h"

namespace sharmix {

using Bfloat16 = uint16_t;  // the upper half of a float
typedef Bfloat16 HalfWords __attribute__((vector_size(VECTOR_BYTES / 2)));

constexpr float ROUNDING = 1.001f / 256;  // the largest relative error of a number that is rounded to bfloat16
constexpr int64_t SEVERAL = 4;            // vectors of large logits, which bound the reach of a row

inline Floats floats(const Bfloat16* address) {
    HalfWords words;
    std::memcpy(&words, address, sizeof words);
    const FloatBits bits = __builtin_convertvector(words, FloatBits) << 16;
    Floats result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline float dot(const float* a, const float* b, int64_t count) {
    Floats sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * LANES<float> <= count; i += 4 * LANES<float>)
        for (int part = 0; part < 4; ++part)
            sums[part] += load<float>(a + i + part * LANES<float>) * load<float>(b + i + part * LANES<float>);
    float total = sum<float>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < count; ++i) total += a[i] * b[i];
    return total;
}

// An output layer in float32; its product hidden . weight^T in bfloat16; and bounds of the norms of the rounded vectors and
// of their errors, which include the errors of sums of products.
struct ScreenedLayer {
    const float *hidden, *weight, *bias;  // bias may be null
    const Bfloat16* product;              // [rows, classes]
    const float *hidden_error, *hidden_rounded, *weight_error, *weight_rounded;
    int64_t classes, features;

    struct Bounds {
        Floats lower, upper;
    };

    // Of the logits of some classes.
    INLINE Bounds bounds(int64_t row, int64_t start) const {
        const Floats rounded = floats(product + row * classes + start);
        const Floats offset = bias ? load<float>(bias + start) : Floats{};
        const float error = hidden_error[row], norm = error + hidden_rounded[row];
        const Floats radius = norm * load<float>(weight_error + start) + error * load<float>(weight_rounded + start) +
                              ROUNDING * (rounded < 0 ? -rounded : rounded);
        return {rounded + offset - radius, rounded + offset + radius};
    }

    float logit(int64_t row, int64_t place) const {
        return dot(hidden + row * features, weight + place * features, features) + (bias ? bias[place] : 0);
    }
};

// Lists the classes of a row that can be in the support, and their logits.
class Screen {
  public:
    // The layer has at least as many classes as a vector has lanes.
    Screen(const ScreenedLayer& layer, const Orders& orders, int64_t room)
        : logits(room), places(room + LANES<float>), layer_(layer), equation_(orders, layer.classes), most_(room - 1) {}

    // False if so many classes can be in the support that no room is left for another one, or a number is not finite.
    bool find(int64_t row) {
        float large[SEVERAL * LANES<float>];
        const float highest = find_large(row, large);
        if (!std::isfinite(highest)) return false;
        const double s = std::min(root_bound(large, SEVERAL * LANES<float>, highest, equation_), equation_.highest);
        reach_ = (1 + MARGIN) * s * equation_.orders.temperature / equation_.orders.delta();
        return collect(row, least(*std::max_element(large, std::end(large)))) && keep_within_reach(row);
    }

    // Lists a class, if it is not listed; returns its place.
    int64_t add(int64_t row, int64_t target) {
        const auto end = places.begin() + count, found = std::find(places.begin(), end, int32_t(target));
        if (found == end) {
            logits[count] = layer_.logit(row, target);
            places[count++] = int32_t(target);
        }
        return found - places.begin();
    }

    int64_t count = 0;
    std::vector<float> logits;
    std::vector<int32_t> places;

  private:
    // No class with a lower logit is in the support. Adding a bias rounds logits by less than is subtracted here.
    float least(double best) const { return float(best - reach_ - 0x1p-21 * (std::abs(best) + reach_)); }

    // Writes lower bounds of several large logits, the largest among them. Returns an upper bound of the largest logit; it is
    // not finite where an upper bound is not, or where all are -inf.
    float find_large(int64_t row, float* large) const {
        std::fill_n(large, SEVERAL * LANES<float>, -INFINITY);
        Floats highest = all(-INFINITY), undefined = {};
        int64_t turn = 0;
        for_classes([&](int64_t start, int64_t seen) {
            auto [lower, upper] = layer_.bounds(row, start);
            highest = upper > highest ? upper : highest;
            undefined = upper == upper ? undefined : upper;
            for (int64_t lane = 0; lane < seen; ++lane) lower[lane] = -INFINITY;  // no class counts twice
            float* const kept = large + turn++ % SEVERAL * LANES<float>;
            const Floats before = load<float>(kept);
            store<float>(kept, lower > before ? lower : before);
        });
        return largest<float>(highest) + sum<float>(undefined);
    }

    bool collect(int64_t row, float lowest) {
        count = 0;
        bool fits = true;
        for_classes([&](int64_t start, int64_t seen) {
            const auto above = layer_.bounds(row, start).upper >= lowest;
            if (!fits || !any(above)) return;
            for (int64_t lane = seen; lane < LANES<float>; ++lane)
                if (above[lane]) places[count++] = int32_t(start + lane);
            fits = count <= most_;
        });
        return fits;
    }

    bool keep_within_reach(int64_t row) {
        float best = -INFINITY;
        for (int64_t i = 0; i < count; ++i) {
            logits[i] = layer_.logit(row, places[i]);
            best = logits[i] > best || logits[i] != logits[i] ? logits[i] : best;
        }
        const float lowest = least(best);
        int64_t kept = 0;
        for (int64_t i = 0; i < count; ++i) {
            logits[kept] = logits[i];
            places[kept] = places[i];
            kept += logits[i] >= lowest;
        }
        count = kept;
        return std::isfinite(best);
    }

    // body(first class, number of classes that it has seen), for one vector of classes after another
    template <class Body> INLINE void for_classes(Body body) const {
        int64_t start = 0;
        for (; start + LANES<float> <= layer_.classes; start += LANES<float>) body(start, 0);
        if (start < layer_.classes) body(layer_.classes - LANES<float>, LANES<float> - (layer_.classes - start));
    }

    const ScreenedLayer& layer_;
    Equation<float> equation_;
    double reach_ = 0;
    int64_t most_;
};

// For each row the number of classes that can be in the support, with its target; their logits and places [rows, room],
// filled up with -inf; and the target's place among them. The number is -1 if the product leaves `room` or more, or a
// number is not finite.
inline void screen(const ScreenedLayer& layer, const int64_t* targets, const Orders& orders, int64_t room, int64_t* counts,
                   float* logits, int32_t* places, int64_t* own, int64_t rows) {
    for_rows(rows, layer.classes, [&](int64_t begin, int64_t end) {
        Screen screen(layer, orders, room);
        for (int64_t row = begin; row < end; ++row) {
            counts[row] = -1;
            if (!screen.find(row)) continue;
            own[row] = screen.add(row, targets[row]);
            counts[row] = screen.count;
            std::copy_n(screen.logits.begin(), screen.count, logits + row * room);
            std::copy_n(screen.places.begin(), screen.count, places + row * room);
            std::fill(logits + row * room + screen.count, logits + (row + 1) * room, -INFINITY);
        }
    });
}

}  // namespace sharmix
