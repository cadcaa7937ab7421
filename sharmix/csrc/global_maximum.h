// The largest of several maxima, outside the concave region. sharmix/_mathematics/global_maximum.py explains the method.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "equation.h"

namespace sharmix {

constexpr size_t MOST_CUTS = 16384;

// The errors that rounding can cause.
struct Precision {
    double rounding;  // the relative error of a bound
    double slope;     // a slope above this value is positive in spite of rounding
};

constexpr Precision SINGLE{1e-4, 1e-2}, DOUBLE{1e-13, 1e-6};

// The values at one end of a cell, which bound the equation and the objective over the cell.
struct End {
    End(const Orders& orders, const Point<double>& point)
        : y(point.y), feedback((orders.q - orders.r) * point.renyi), rising(point.residual + feedback),
          linear(point.linear(orders)), entropy(point.scaled_entropy(orders)), sums(point.sums) {}

    double y, feedback, rising, linear, entropy;
    Sums<double> sums;
};

struct Cell {
    End low, high;

    bool may_hold_maximum(double best, double rounding) const {
        const double most = rounding * (1 + high.feedback);
        return low.rising - high.feedback <= most && high.rising - low.feedback >= -most &&
               low.linear + high.entropy + rounding * (1 + high.entropy) >= best;
    }

    // The range of the roots in the cell: y = feedback - delta log total at a root, and both terms rise.
    std::pair<double, double> roots(double rounding) const {
        const double most = rounding * (1 + high.feedback);
        return {std::max(low.y, low.feedback - (high.rising - high.y) - most),
                std::min(high.y, high.feedback - (low.rising - low.y) + most)};
    }

    bool crosses() const { return low.rising < low.feedback && high.rising >= high.feedback; }

    // Whether the equation rises in the whole cell, which then has one root at most. As y rises, each term of a sum rises,
    // except for its power of u, which shrinks as e^-y. So the sums at the ends bound the sums between, and thus the slope.
    bool surely_rises(const Orders& orders, double least_slope) const {
        const Sums<double>&a = low.sums, &b = high.sums;
        const double stretch = std::exp(high.y - low.y), delta = orders.delta(), feedback = (orders.q - orders.r) / delta;
        const double least_u = -a.base_u / stretch / b.total, most_u = -b.base_u * stretch / a.total;
        const double excess = b.base_uu * stretch * stretch + a.power_u / stretch * (least_u + delta);
        const double rest = excess > 0 ? a.total + a.power_u : b.total + b.power_u;
        const double slope = 1 + (1 - feedback) * (feedback < 1 ? least_u : most_u) - feedback * excess / (delta * rest);
        return slope > least_slope;
    }
};

// Cells, one of which holds the y of the largest objective. A small cell may have several roots, but is too small to be cut.
struct Cells {
    std::vector<Cell> rising, small;
};

// The cells between ends. at(y) returns the Point of y. narrow(y) says that all later y are at most y.
template <class At, class Narrow>
Cells cells_of_maximum(At at, Narrow narrow, const Orders& orders, const std::vector<End>& ends, Precision precision) {
    const auto end = [&](double y) { return End(orders, at(y)); };
    const double order = std::max(orders.delta(), 1.0), rounding = precision.rounding;
    const double width = std::pow(10 * rounding, order / (1 + order));
    double best = 0, highest = ends.back().y;
    Cells found;
    std::vector<Cell> waiting;  // the highest cell is taken first: without it fewer classes matter
    for (size_t i = 1; i < ends.size(); ++i) waiting.push_back({ends[i - 1], ends[i]});
    for (const End& some : ends) best = std::max(best, some.linear + some.entropy);
    for (size_t cuts = 0; !waiting.empty();) {
        const Cell cell = waiting.back();
        waiting.pop_back();
        if (cell.high.y < highest && found.rising.empty() && found.small.empty()) narrow(highest = cell.high.y);
        if (!cell.may_hold_maximum(best, rounding)) continue;
        const auto [from, to] = cell.roots(rounding);
        if (from > to) continue;
        if (cell.surely_rises(orders, precision.slope)) {
            found.rising.push_back(cell);
        } else if (cell.high.y - cell.low.y <= width || ++cuts > MOST_CUTS) {
            found.small.push_back(cell);
        } else if (to - from < (cell.high.y - cell.low.y) / 2) {
            const End high = to < cell.high.y ? end(to) : cell.high;
            waiting.push_back({from > cell.low.y ? end(from) : cell.low, high});
        } else {
            const End middle = end((cell.low.y + cell.high.y) / 2);
            best = std::max(best, middle.linear + middle.entropy);
            waiting.push_back({cell.low, middle});
            waiting.push_back({middle, cell.high});
        }
    }
    const auto is_out = [&](const Cell& cell) { return !cell.crosses() || !cell.may_hold_maximum(best, rounding); };
    for (auto* cells : {&found.rising, &found.small})
        cells->erase(std::remove_if(cells->begin(), cells->end(), is_out), cells->end());
    return found;
}

}  // namespace sharmix
