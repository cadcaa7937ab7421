// Sparsemax and 1.5-entmax of two classes, in closed form. It saves nine tenths of the map's two passes at 262144 x 2.
#pragma once

#include "kernel.h"

namespace sharmix {

// The probability of a class from a, the distance of its logit to the other one in units of the temperature; and the slope
// by a, from both probabilities.
struct SparsemaxOfTwo {
    static constexpr double ORDER = 2;
    static double probability(double a) { return std::min(std::max((1 + a) / 2, 0.0), 1.0); }
    static double slope(double p, double other) { return p > 0 && other > 0 ? 0.5 : 0; }
};

// The roots of both p differ by a/2, and their squares sum to 1.
struct EntmaxOfTwo {
    static constexpr double ORDER = 1.5;

    static double probability(double a) {
        const double gap = std::min(std::max(a / 2, -1.0), 1.0), sum = std::sqrt(2 - gap * gap);
        const double root = (1 + gap) * (1 - gap) / (sum - gap);  // (sum + gap)/2; here no digits of a small one cancel
        return gap < 0 ? root * root : (1 + gap * sum) / 2;
    }

    static double slope(double p, double other) {
        const double root = std::sqrt(p), other_root = std::sqrt(other);
        return root * other_root / (root + other_root);
    }
};

// body(map) with the closed form for all rows. Returns whether there is one.
template <class Body> bool in_closed_form(int64_t classes, const OrderColumns& orders, Body body) {
    const double order = orders.q.value;
    if (classes != 2 || !orders.shared() || orders.r.value != order) return false;
    if (order == SparsemaxOfTwo::ORDER) body(SparsemaxOfTwo());
    else if (order == EntmaxOfTwo::ORDER) body(EntmaxOfTwo());
    else return false;
    return true;
}

// p of the rows from `begin` to `end`.
template <class Map, class T> void solve_two(const T* logits, T* probabilities, int64_t begin, int64_t end, double temperature) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (int64_t i = 2 * begin; i < 2 * end; i += 2) {
        const double first = logits[i], second = logits[i + 1], a = (first - second) / temperature;
        const bool defined = first < infinity && second < infinity && (first > -infinity || second > -infinity);
        probabilities[i] = defined ? T(Map::probability(a)) : UNDEFINED<T>;
        probabilities[i + 1] = defined ? T(Map::probability(-a)) : UNDEFINED<T>;
    }
}

// (dp/dz) grad of the rows from `begin` to `end`. The grad of a class without probability may be anything.
template <class Map, class T>
void pull_back_two(const T* probabilities, const T* grad, T* grad_logits, int64_t begin, int64_t end, double temperature) {
    for (int64_t i = 2 * begin; i < 2 * end; i += 2) {
        const double p = probabilities[i], other = probabilities[i + 1];
        const double along = (p > 0 ? grad[i] : 0) - (other > 0 ? grad[i + 1] : 0);
        const double result = Map::slope(p, other) * along / temperature;
        grad_logits[i] = T(p > 0 ? result : p);  // 0, or NaN in an undefined row
        grad_logits[i + 1] = T(other > 0 ? -result : other);
    }
}

}  // namespace sharmix
