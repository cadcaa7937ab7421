// Solves several rows with few candidates together, in the concave region: one row in each lane of a vector. It saves two
// thirds of the map's forward pass at 64 x 3 and 64 x 100.
#pragma once

#include "candidates.h"
#include "gradients.h"

namespace sharmix {

// The results of a row besides p.
struct RowResult {
    double maximum, scale, total, conjugate;
    ParameterGradients<double> slopes;  // of the conjugate

    static constexpr RowResult undefined() {
        constexpr double nan = UNDEFINED<double>;
        return {nan, nan, nan, nan, {nan, nan, nan}};
    }
};

template <class T> class GroupSolver {
  public:
    static constexpr int64_t LARGEST = LANES<T>;  // rows of a group

    GroupSolver(int64_t classes, bool with_slopes)
        : most_(std::min(classes, CROWD)), with_slopes_(with_slopes), columns_(new T[most_ * LARGEST]),
          base_(new double[most_ * LARGEST]), places_(new int32_t[most_ * LARGEST]), p_(new T[padded(most_) + PADDING]) {}

    static bool is_crowd(int64_t count, const Shape& shape) {
        return count > (shape.integer == ANY ? CROWD_OF_POWERS : CROWD);
    }

    bool is_empty() const { return size_ == 0; }
    bool is_full() const { return size_ == LARGEST; }

    void add(int64_t row, const Candidates<T>& candidates) {
        row_[size_] = row;
        count_[size_] = candidates.count;
        maximum_[size_] = T(candidates.maximum);
        high_[size_] = T(candidates.high);
        threshold_[size_] = candidates.entries().threshold;
        longest_ = std::max(longest_, candidates.count);
        for (int64_t j = 0; j < candidates.count; ++j) columns_[j * LARGEST + size_] = candidates.value[j];
        std::copy_n(candidates.place.get(), candidates.count, places_.get() + size_ * most_);
        ++size_;
    }

    // Calls on_solved(row, result, p) for each row of the group. The group is empty then.
    template <class OnSolved> void solve(const Equation<T>& equation, OnSolved on_solved) {
        fill_up();
        if (equation.fits_float) approach(equation);
        for (int64_t first = 0; first < size_; first += LANES<double>) solve_lanes(equation, first, on_solved);
        size_ = longest_ = 0;
    }

  private:
    static constexpr int64_t CROWD_OF_POWERS = 128;

    // Fills short columns with -inf, and the columns of lanes without a row: their first step is NaN, so they stop at once.
    void fill_up() {
        const T nothing = -std::numeric_limits<T>::infinity();
        for (int64_t lane = 0; lane < LARGEST; ++lane)
            for (int64_t j = lane < size_ ? count_[lane] : 0; j < longest_; ++j) columns_[j * LARGEST + lane] = nothing;
    }

    // Moves near the root in the precision of the logits. It saves a fifth of the map's forward pass at 64 x 100, a third for
    // q = 1.3.
    void approach(const Equation<T>& equation) {
        using V = Vector<T>;
        const Orders& orders = equation.orders;
        const V maximum = load<T>(maximum_), high = load<T>(high_), low = all(T(equation.low));
        const auto at = [&](V y) {
            const LineOfU<V> line{maximum, all(T(equation.unit)), T(orders.delta()) * exp(-y)};
            return Point<V>(orders, y, sums_over<ManyRows<T>>(columns_.get(), longest_ * LARGEST, line, equation.shape));
        };
        const Point<V> point = newton(at, high, low, high + T(MARGIN), T(NEAR));
        const V y = point.y + point.step();
        store(high_, (y > low) & (y < high) ? y : high);
    }

    template <class OnSolved> void solve_lanes(const Equation<T>& equation, int64_t first, OnSolved on_solved) {
        using Layout = ManyRows<double>;
        const Orders& orders = equation.orders;
        const Doubles maximum = load<double>(maximum_ + first), start = load<double>(high_ + first);
        const T* columns = columns_.get() + first;
        LineOfU<Doubles> line{maximum, all(equation.unit), {}};
        const auto at = [&](Doubles y) {
            line.scale = orders.delta() * exp(-y);
            return Point<Doubles>(orders, y, sums_over<Layout>(columns, longest_ * LARGEST, line, equation.shape, base_.get(),
                                                               LARGEST / LANES<double>));
        };
        const auto point = newton(at, start, all(equation.low), all(equation.high + MARGIN), equation.last_step);
        const Solution<Doubles> solution(equation, point, line.scale);
        const Doubles level = 1 / solution.total;
        for (int64_t j = 0; j < longest_; ++j) {
            const Doubles place = line(load<double>(columns + j * LARGEST)), power = load<double>(base_.get() + j * LARGEST);
            store(base_.get() + j * LANES<double>, probability(line, place, power, solution.turn, level));
        }
        ParameterGradients<Doubles> slopes;
        if (with_slopes_)
            slopes = conjugate_gradients<Layout>(base_.get(), longest_ * LANES<double>, solution.renyi, orders);
        for (int64_t lane = 0; lane < LANES<double> && first + lane < size_; ++lane) {
            const RowResult result{maximum[lane], solution.scale[lane], solution.total[lane], solution.conjugate[lane],
                                   {slopes.q[lane], slopes.r[lane], slopes.temperature[lane]}};
            const int64_t count = count_[first + lane];
            for (int64_t j = 0; j < count; ++j) p_[j] = T(base_[j * LANES<double> + lane]);
            const int32_t* places = places_.get() + (first + lane) * most_;
            on_solved(row_[first + lane], result, Entries<T>{p_.get(), places, count, threshold_[first + lane]});
        }
    }

    int64_t most_;
    bool with_slopes_;
    std::unique_ptr<T[]> columns_;     // the j-th candidate of each row
    std::unique_ptr<double[]> base_;   // w^(beta-1) of each, then p
    std::unique_ptr<int32_t[]> places_;
    std::unique_ptr<T[]> p_;
    int64_t size_ = 0, longest_ = 0;
    int64_t row_[LARGEST], count_[LARGEST];
    T maximum_[LARGEST] = {}, high_[LARGEST] = {}, threshold_[LARGEST];
};

}  // namespace sharmix
