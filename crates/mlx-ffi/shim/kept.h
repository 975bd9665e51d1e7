// What the files about replays share: operations that are walked once and then repeated.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mlx/array.h"
#include "mlx/primitives.h"
#include "replay.h"

namespace mlxrs {

// Something else than a replay can hold.
struct Foreign : std::exception {
  explicit Foreign(std::string why = "an array that nothing makes") : why(std::move(why)) {}

  const char* what() const noexcept override {
    return why.c_str();
  }

  std::string why;
};

// Operations of ours over buffers that stay, whatever device repeats them.
class Kept {
 public:
  virtual ~Kept() = default;

  // Keeps the operations that make `output`, where all ranks can. `follows`: the fixed arrays may be elsewhere each time.
  mlxrs_outcome record(
      const mlx::core::array& output,
      const std::vector<mlx::core::array>& moving,
      const std::vector<mlx::core::array>& fixed,
      bool follows,
      const mlxrs_agreement& ranks);

  // Sends the operations that make `outputs` to the device, which are evaluated as soon as all that was sent
  // before is. What else they need, and what does not need them, is evaluated first. Where not all ranks can, nothing is
  // sent but that.
  mlxrs_outcome dispatch(const std::vector<mlx::core::array>& outputs, const mlxrs_agreement& ranks);

  // What the device reads and writes until it is through with what was dispatched.
  std::vector<mlx::core::array> held() const;

  // Whether the output can be made of these arrays: all have the forms that they had, and those that are not followed the
  // places.
  bool fits(const std::vector<mlx::core::array>& moving, const std::vector<mlx::core::array>& fixed) const;

  // The output for other moving arrays; nothing where these do not fit.
  std::optional<mlx::core::array> run(
      std::vector<mlx::core::array> moving,
      const std::vector<mlx::core::array>& fixed);

  // Waits for what was sent, and lets go of what it read.
  virtual void wait() = 0;

 protected:
  // An array as an operation finds it whenever it is repeated.
  struct Operand {
    uint64_t address;
    mlx::core::Dtype dtype;
    mlx::core::Shape shape;
    mlx::core::Strides strides;
  };

  struct Operation {
    std::shared_ptr<mlx::core::Primitive> primitive;
    std::vector<Operand> inputs;
    // Without the inputs that it writes into.
    std::vector<Operand> outputs;
  };

  // What there is to know of an operation.
  struct Known {
    bool is_ready;
    // The inputs that it writes into, which are its last outputs.
    std::vector<int> written;
  };

  // Throws where `a` is made by another operation than the device repeats.
  virtual Known known(const mlx::core::array& a) = 0;
  // Where an array that is evaluated lies.
  virtual uint64_t address(const mlx::core::array& a) const = 0;
  // In which an output that `a` is will lie.
  virtual mlx::core::Strides strides(const mlx::core::array& a) const = 0;
  // Keeps operations, of which those with the numbers `following`, which ascend, may be changed later.
  virtual void keep(std::vector<Operation> operations, const std::vector<size_t>& following) = 0;
  // From now on, one of those that may be changed, which is the `index`th of them, has these operands.
  virtual void change(size_t index, const Operation& operation) = 0;
  // Whether operations can take a part of an array where it lies, of which the values are row-major.
  virtual bool takes_views() const {
    return false;
  }
  // Whether an operation finds the length of an input's third dimension in what it is given.
  virtual bool takes_length(const Operation& operation, size_t input) const = 0;
  // A buffer of so many words of eight bytes, of any values: for those that pass, or for what is left.
  virtual mlx::core::array make_words(int count, bool is_left);
  // Sends operations, which are not repeated.
  virtual void send_once(const std::vector<Operation>& operations) = 0;
  // Copies each moving array to the place of its own, then repeats the operations, which read and write `held` too.
  virtual void send(
      std::vector<mlx::core::array> moving,
      const std::vector<uint64_t>& places,
      std::vector<mlx::core::array> held) = 0;

  mlx::core::Stream stream() const {
    return stream_;
  }

 private:
  enum class Kind { Moving, Leaf, Made };

  // Where an array is: which moving one, which leaf, or an output of an operation, of which a view begins `offset` bytes behind
  // the beginning.
  struct Place {
    Kind kind;
    size_t index;
    size_t output{0};
    size_t offset{0};
  };

  // An operation before its outputs have their places.
  struct Step {
    std::shared_ptr<mlx::core::Primitive> primitive;
    std::vector<Place> places;
    std::vector<Operand> inputs;
    std::vector<mlx::core::array> outputs;
  };

  struct Leaf {
    mlx::core::array of;
    uint64_t address;
  };

  // A fixed array as it was when the operations were last sent, and when they were kept.
  struct Fixed {
    Operand last;
    mlx::core::Shape first_shape;
    // Whether the third dimension may be longer.
    bool may_be_longer;
  };

  // An input of an operation that follows a fixed array.
  struct Follower {
    // Which of the operations that may be changed.
    size_t operation;
    size_t input;
    size_t fixed;
  };

  // Of each step, where each of its outputs lies.
  using Offsets = std::vector<std::vector<size_t>>;

  // Of a view of what operations of ours make, the bytes before it.
  std::optional<size_t> offset_of_view(const mlx::core::array& a);
  // Whether an operation of ours makes it; a view is none.
  bool is_made_here(const mlx::core::array& a);
  bool is_own(const mlx::core::array& a);
  void find_foreign(const mlx::core::array& a, std::vector<mlx::core::array>& found, std::unordered_set<std::uintptr_t>& seen);
  bool is_apart(const mlx::core::array& a, std::unordered_set<std::uintptr_t>& seen);
  // Takes note of the operations that make `output` of moving arrays.
  void walk(const mlx::core::array& output, const std::vector<mlx::core::array>& moving);
  // Keeps what was walked.
  void keep_walked(const mlx::core::array& output, const std::vector<mlx::core::array>& fixed);
  Place visit(const mlx::core::array& a);
  size_t place_outputs(const std::vector<Place>& kept, Offsets& offsets, size_t end) const;
  size_t set_apart(const std::vector<Place>& left, Offsets& offsets) const;
  uint64_t address_at(size_t offset) const;
  std::vector<Operation> operations(const Offsets& offsets);
  mlx::core::array output_at(const mlx::core::array& like, size_t offset) const;
  // A buffer of so many bytes is made.
  mlx::core::array make_bytes(size_t bytes, bool is_left);
  void make_buffer(size_t bytes);
  void build(const mlx::core::array& output);
  // Takes note of the operations that read the leaves which are fixed arrays, and of their inputs that do.
  std::vector<size_t> find_followers(const std::vector<Operation>& operations);
  bool is_like(const mlx::core::array& a, const Fixed& known) const;
  void follow(const std::vector<mlx::core::array>& fixed);

  mlx::core::Stream stream_{0, mlx::core::Device::cpu};
  bool is_ready_{true};
  std::unordered_map<std::uintptr_t, Place> ids_;
  std::vector<Step> steps_;
  // As they were when the operations were kept.
  std::vector<mlx::core::array> moving_;
  std::vector<uint64_t> moving_places_;
  std::vector<Leaf> leaves_;
  bool follows_{false};
  bool is_whole_{true};
  std::vector<Fixed> fixed_;
  // Which leaves are which fixed arrays.
  std::unordered_map<size_t, size_t> fixed_leaves_;
  std::vector<Follower> followers_;
  // The operations that may be changed, as they are.
  std::vector<Operation> following_;
  // Of the moving arrays and of all outputs.
  std::optional<mlx::core::array> buffer_;
  uint64_t first_{0};
  // What is left of operations that are sent, where that has a buffer of its own.
  std::optional<mlx::core::array> left_;
  uint64_t first_left_{0};
  std::optional<mlx::core::array> output_;
};

// What was dispatched and may not be through.
class Dispatched {
 public:
  virtual ~Dispatched() = default;
  // As `Kept::dispatch`.
  virtual mlxrs_outcome send(const std::vector<mlx::core::array>& outputs, const mlxrs_agreement& ranks) = 0;
  // Waits for all that was sent.
  virtual void wait() = 0;
  // Gives up the memory that it keeps for what is sent next.
  virtual void rest() = 0;
};

// What all ranks come to, of this one's outcome.
mlxrs_outcome agreed(const mlxrs_agreement& ranks, mlxrs_outcome own);

std::unique_ptr<Kept> kept_on_cpu();
// Nothing where there is no CUDA.
std::unique_ptr<Kept> kept_on_cuda(bool overlap);
std::unique_ptr<Dispatched> dispatched_on_cuda();

} // namespace mlxrs
