// Runs each step of the kernel on fixed numbers, and has callgrind count its instructions: see instructions.py.
#include <string>
#include <vector>

#include <valgrind/callgrind.h>

#include "rows.h"

namespace {

using namespace sharmix;

constexpr double SPARSE = 2, DENSE = 0.05;  // what logits of unit variance are multiplied by, as in maps.yaml
constexpr int64_t SMALL = 1 << 15;          // logits, up to which the loss computes its gradient too, as in sharmix/_operators/cpu.py

struct Case {
    const char* name;
    int64_t rows, classes;
    double scale, q, r;
    bool learned = false;  // count the derivatives by the orders too
};

// Long rows are solved one by one, so that few of them will do.
const Case CASES[] = {
    {"64 × 2, sparsemax", 64, 2, SPARSE, 2, 2},
    {"64 × 2, 1.5-entmax", 64, 2, SPARSE, 1.5, 1.5},
    {"64 × 3", 64, 3, SPARSE, 1.25, 1.5, true},
    {"64 × 100", 64, 100, SPARSE, 1.25, 1.5},
    {"64 × 100, q = 1.3", 64, 100, SPARSE, 1.3, 1.5},
    {"64 × 100, not concave", 64, 100, SPARSE, 1.75, 1.25},
    {"64 × 1000", 64, 1000, SPARSE, 1.25, 1.5, true},
    {"64 × 1000, q = 1.3", 64, 1000, SPARSE, 1.3, 1.5},
    {"8 × 10000, sparse", 8, 10000, SPARSE, 1.25, 1.5},
    {"8 × 10000, sparse, q = 1.3", 8, 10000, SPARSE, 1.3, 1.5},
    {"2 × 10000, sparse, not concave", 2, 10000, SPARSE, 1.75, 1.25},
    {"8 × 10000, dense", 8, 10000, DENSE, 1.25, 1.5, true},
    {"8 × 10000, dense, q = 1.3", 8, 10000, DENSE, 1.3, 1.5},
    {"2 × 10000, dense, not concave", 2, 10000, DENSE, 1.75, 1.25},
};

int32_t on_one_thread(int64_t begin, int64_t end, int64_t, void (*body)(int64_t, int64_t, void*), void* context) {
    body(begin, end, context);
    return 0;
}

// Numbers that are the same everywhere (splitmix64).
class Generator {
  public:
    uint64_t bits() {
        uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
        return mixed ^ mixed >> 31;
    }

    // Nearly normal: the sum of twelve uniform numbers of 16 bits, less its mean, over 2^16.
    float normal() {
        int64_t sum = 0;
        for (int word = 0; word < 3; ++word)
            for (uint64_t rest = bits(); rest; rest >>= 16) sum += int64_t(rest & 0xffff);
        return float((double(sum) - 6 * 65535) / 65536);
    }

    std::vector<float> normals(int64_t count, double scale) {
        std::vector<float> numbers(count);
        for (float& number : numbers) number = float(scale * normal());
        return numbers;
    }

  private:
    uint64_t state_ = 0;
};

template <class Step> void count(const Case& from, const char* step_name, Step step) {
    const std::string name = std::string(from.name) + ", " + step_name;
    step();  // the first call of a library's function looks for it, and the first allocation asks the system for memory
    CALLGRIND_START_INSTRUMENTATION;
    step();
    CALLGRIND_STOP_INSTRUMENTATION;
    CALLGRIND_DUMP_STATS_AT(name.c_str());
}

void count_steps(const Case& from) {
    const int64_t rows = from.rows, classes = from.classes, size = rows * classes;
    Generator generator;
    const std::vector<float> logits = generator.normals(size, from.scale), grad = generator.normals(size, 1);
    std::vector<int64_t> labels(rows);
    for (int64_t& label : labels) label = int64_t(generator.bits() % uint64_t(classes));
    std::vector<float> probabilities(size), grad_logits(size), losses(rows), slopes(3 * rows);
    std::vector<State> states(rows);

    const OrderColumns orders{{nullptr, from.q}, {nullptr, from.r}, {nullptr, 1}};
    const Targets targets{labels.data(), -100};
    const float one = 1;
    const RowGradient<float> mean{&one, 0, double(rows)};
    const bool small = size <= SMALL;
    const auto pull_back = [&](float* by_orders) {
        map_backward(probabilities.data(), grad.data(), grad_logits.data(), by_orders, rows, classes, orders);
    };
    const auto loss = [&](float* by_orders) {
        const ClassLossTask<float> task{logits.data(), targets, losses.data(), small ? nullptr : states.data(),
                                        by_orders, small ? grad_logits.data() : nullptr, mean[0], classes, orders};
        class_loss(task, rows);
    };

    count(from, "map forward", [&] {
        solve(logits.data(), probabilities.data(), static_cast<float*>(nullptr), rows, classes, orders);
    });
    count(from, "map backward", [&] { pull_back(nullptr); });
    if (from.learned) count(from, "map backward, learned", [&] { pull_back(slopes.data()); });
    count(from, "loss forward", [&] { loss(nullptr); });
    if (from.learned) count(from, "loss forward, learned", [&] { loss(slopes.data()); });
    if (small) return;
    count(from, "loss backward", [&] {
        class_loss_backward(logits.data(), targets, states.data(), mean, grad_logits.data(), rows, classes, orders);
    });
}

}  // namespace

int main() {
    torch_parallel_for = on_one_thread;
    for (const Case& each : CASES) count_steps(each);
}
