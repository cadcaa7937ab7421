// The functions of the kernel that JavaScript calls: one row of float64 logits at a time, orders as numbers. The headers
// of the Python library, sharmix/csrc, compute everything.
#include <cstdlib>
#include <vector>

#include "rows.h"

// The program ends when memory runs out: a page cannot print an error. libc++'s own operators would add its printf.
void* operator new(size_t bytes) {
    void* const memory = std::malloc(bytes);
    if (!memory) __builtin_trap();
    return memory;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

#define EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace {

using namespace sharmix;

// WebAssembly has one thread.
int32_t on_one_thread(int64_t begin, int64_t end, int64_t, void (*body)(int64_t, int64_t, void*), void* context) {
    body(begin, end, context);
    return 0;
}

const bool IS_READY = (torch_parallel_for = on_one_thread);

OrderColumns columns(double q, double r, double temperature) {
    return {{nullptr, q}, {nullptr, r}, {nullptr, temperature}};
}

double largest_of(const double* z, int64_t classes) { return *std::max_element(z, z + classes); }

// The equation of one row, evaluated at any y: the solution family, of which the map's output is one member.
class Family {
  public:
    Family(const double* z, int64_t classes, const Orders& orders)
        : equation(orders, classes), maximum_(largest_of(z, classes)),
          logits_(padded(classes), -std::numeric_limits<double>::infinity()) {
        std::copy_n(z, classes, logits_.begin());
    }

    Point<double> at(double y) const {
        return {equation.orders, y, sums(equation.unit, equation.orders.delta() * std::exp(-y))};
    }

    // Of u = (z - maximum) unit scale.
    Sums<double> sums(double unit, double scale) const {
        const LineOfU<Doubles> line{all(maximum_), all(unit), all(scale)};
        return sums_over<OneRow<double>>(logits_.data(), int64_t(logits_.size()), line, equation.shape);
    }

    // The member at y as a curve shows it: its y, its largest probability, and the objective less the largest logit.
    void put(const Point<double>& point, double* three) const {
        three[0] = point.y;
        three[1] = 1 / point.sums.total;
        three[2] = point.objective(equation.orders) * equation.orders.temperature;
    }

    const Equation<double> equation;

  private:
    double maximum_;
    std::vector<double> logits_;
};

}  // namespace

// Memory for this many doubles, kept until the page closes.
EXPORT(allocate) void* allocate(int32_t numbers) { return std::malloc(sizeof(double) * size_t(numbers)); }

// p [rows, classes]
EXPORT(map) void map(const double* z, double* p, int32_t rows, int32_t classes, double q, double r, double temperature) {
    solve<double>(z, p, nullptr, rows, classes, columns(q, r, temperature));
}

// The number of classes with p > 0, one row of logits at many orders, which are read from two lists.
EXPORT(survivors)
void survivors(const double* z, int32_t classes, const double* q, const double* r, double temperature, int32_t count,
               uint16_t* sizes) {
    std::vector<double> rows;
    for (int32_t row = 0; row < count; ++row) rows.insert(rows.end(), z, z + classes);
    Solver<double> solver({{q, 0}, {r, 0}, {nullptr, temperature}}, classes, false);
    const auto on_solved = [&](int64_t row, const RowResult&, const Entries<double>& p) {
        sizes[row] = uint16_t(p.count - std::count(p.value, p.value + p.count, 0));
    };
    solver.solve(rows.data(), 0, count, [](int64_t) { return true; }, on_solved);
}

// The Fenchel-Young loss of a class; its gradient p - y is written.
EXPORT(loss)
double loss(const double* z, double* gradient, int32_t classes, int32_t label, double q, double r, double temperature) {
    const int64_t target = label;
    double found;
    class_loss<double>({z, {&target, -1}, &found, nullptr, nullptr, gradient, 1, classes, columns(q, r, temperature)}, 1);
    return found;
}

// The loss of alpha-ReLU, alpha = 1.5, at a threshold; its gradient p - y is written.
EXPORT(alpha_relu_loss)
double alpha_relu_loss(const double* z, double* gradient, int32_t classes, int32_t label, double tau) {
    const AlphaReLU<double> alpha_relu(1.5, tau);
    alpha_relu.gradient(z, label, gradient, 1, classes);
    return loss_of(alpha_relu.conjugate(z, classes), z[label], 0);
}

// (dp/dz) along [classes], and along.(dp/dq), along.(dp/dr) and along.(dp/dtemperature) [3].
EXPORT(pull_back)
void pull_back(const double* p, const double* along, double* by_logits, double* by_orders, int32_t classes, double q, double r,
               double temperature) {
    map_backward<double>(p, along, by_logits, by_orders, 1, classes, columns(q, r, temperature));
}

// `count` members of the solution family, from peaked ones to nearly equal ones [count, 3]: see Family::put.
EXPORT(family)
void family(const double* z, int32_t classes, double q, double r, double temperature, int32_t count, double* members) {
    const Family family(z, classes, {q, r, temperature});
    const double range = (largest_of(z, classes) - *std::min_element(z, z + classes)) / temperature;
    const double high = std::max(family.equation.high + 0.5, std::log(range) + 1), low = std::min(family.equation.low - 1.5, high - 6);
    for (int32_t i = 0; i < count; ++i)
        family.put(family.at(low + (high - low) * i / (count - 1)), members + 3 * i);
}

// The local maxima of the objective over the family [at most `most`, 3], and their number.
EXPORT(maxima)
int32_t maxima(const double* z, int32_t classes, double q, double r, double temperature, int32_t most, double* members) {
    constexpr int CELLS = 512;
    const Family family(z, classes, {q, r, temperature});
    const double low = family.equation.low, width = (family.equation.high + MARGIN - low) / CELLS;
    const auto at = [&](double y) { return family.at(y); };
    int32_t count = 0;
    double before = at(low).residual;
    for (int cell = 0; cell < CELLS && count < most; ++cell) {
        const double from = low + width * cell, to = from + width, after = at(to).residual;
        if (before < 0 && after >= 0)
            family.put(newton<double>(at, (from + to) / 2, from, to, LEAST_STEP), members + 3 * count++);
        before = after;
    }
    return count;
}

// The member of the family at y, [classes].
EXPORT(member)
void member(const double* z, double* p, int32_t classes, double q, double r, double temperature, double y) {
    const Family family(z, classes, {q, r, temperature});
    const Point<double> point = family.at(y);
    const double maximum = largest_of(z, classes), scale = family.equation.unit * family.equation.orders.delta() * std::exp(-y);
    for (int32_t i = 0; i < classes; ++i) {
        const double u = (z[i] - maximum) * scale;
        p[i] = u > -1 ? std::exp(family.equation.shape.beta * std::log1p(u)) / point.sums.total : 0;
    }
}

// The temperature above which a class is in the support, where r >= 2 - 1/q; the formula of sharmix/conformal.py.
EXPORT(entry_temperature)
double entry_temperature(const double* z, int32_t classes, int32_t label, double q, double r) {
    const double gap = largest_of(z, classes) - z[label];
    if (gap == 0) return 0;
    const auto sums = Family(z, classes, {q, r, 1}).sums(1, 1 / gap);
    const double delta = q - 1, mean = sums.power_u / sums.total;
    return std::exp((r - 1) * std::log(sums.total) - (r - q) / delta * std::log1p(mean)) * gap * delta;
}
