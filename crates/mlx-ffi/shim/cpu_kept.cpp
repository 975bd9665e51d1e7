#include "cpu_task.h"
#include "kept.h"

#include <algorithm>
#include <cstring>
#include <future>

#include "mlx/backend/cpu/encoder.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// Tasks of a CPU's stream that are one task.
class CpuKept : public Kept {
 public:
  // Waits for the last task by itself: MLX's way of waiting would take note of errors of the stream, which
  // are for whoever reads values.
  ~CpuKept() override {
    CpuKept::wait();
  }

  void wait() override {
    if (done_.valid()) {
      done_.wait();
    }
  }

 private:
  Known known(const array& a) override {
    return {true, operation_of(a.primitive()).written()};
  }

  uint64_t address(const array& a) const override {
    return reinterpret_cast<uint64_t>(a.data<char>());
  }

  Strides strides(const array& a) const override {
    return operation_of(a.primitive()).strides(a.shape());
  }

  void keep(std::vector<Operation> operations, const std::vector<size_t>& following) override {
    for (auto& operation : operations) {
      tasks_.push_back(task_of(operation));
    }
    following_ = following;
  }

  // What was sent reads the tasks.
  void change(size_t index, const Operation& operation) override {
    wait();
    tasks_[following_[index]] = task_of(operation);
  }

  bool takes_length(const Operation&, size_t) const override {
    return false;
  }

  static CpuTask task_of(const Operation& of) {
    auto& [primitive, inputs, outputs] = of;
    auto& operation = operation_of(*primitive);
    auto& written = operation.written();
    std::vector<CpuOperand> read, made;
    for (auto& output : outputs) {
      made.push_back(operand(output));
    }
    for (int index : written) {
      made.push_back(operand(inputs.at(index)));
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      if (std::find(written.begin(), written.end(), i) == written.end()) {
        read.push_back(operand(inputs[i]));
        require(read.back().is_fit(operation.row_major()));
      }
    }
    for (size_t i = 0; i < made.size(); i++) {
      require(made[i].is_fit(false));
      // What is written is nobody else's.
      auto is_shared = [&](const CpuOperand& other) { return made[i].overlaps(other); };
      require(std::none_of(read.begin(), read.end(), is_shared));
      require(std::none_of(made.begin() + i + 1, made.end(), is_shared));
    }
    return operation.task(std::move(read), std::move(made));
  }

  void send(std::vector<array> moving, const std::vector<uint64_t>& places, std::vector<array> held) override {
    // Ends with the task, whatever becomes of it, and the future is ready then.
    auto end = std::make_shared<std::promise<void>>();
    done_ = end->get_future();
    auto run = [this, end = std::move(end), moving = std::move(moving), held = std::move(held), &places]() {
      for (size_t i = 0; i < moving.size(); i++) {
        std::memcpy(reinterpret_cast<char*>(places[i]), moving[i].data<char>(), moving[i].nbytes());
      }
      for (auto& task : tasks_) {
        task.run();
      }
    };
    cpu::get_command_encoder(stream()).dispatch(std::move(run));
  }

  // MLX sends operations to a CPU as fast as it computes them.
  void send_once(const std::vector<Operation>&) override {
    throw Foreign{};
  }

  static CpuOperand operand(const Operand& of) {
    return {reinterpret_cast<char*>(of.address), of.dtype, of.shape, of.strides};
  }

  static const CpuOperation& operation_of(const Primitive& primitive) {
    auto* operation = dynamic_cast<const CpuOperation*>(&primitive);
    require(operation);
    return *operation;
  }

  static void require(bool fits) {
    if (!fits) {
      throw Foreign{};
    }
  }

  std::vector<CpuTask> tasks_;
  // Of which tasks operands may be others.
  std::vector<size_t> following_;
  std::future<void> done_;
};

} // namespace

std::unique_ptr<Kept> kept_on_cpu() {
  return std::make_unique<CpuKept>();
}

} // namespace mlxrs
