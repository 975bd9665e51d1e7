#include "replay.h"
#include "guarded.h"
#include "kept.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "mlx/c/private/array.h"
#include "mlx/c/private/vector.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// Bytes at which buffers begin.
constexpr size_t ALIGNED = 256;

size_t bytes_of(const array& a) {
  return (std::max<size_t>(a.nbytes(), 1) + ALIGNED - 1) / ALIGNED * ALIGNED;
}

// Of an array that is a part of its only input, or all of it in another shape, the elements before it. Both are row-major.
std::optional<size_t> elements_before(const array& a) {
  // MLX's library does not tell others the types of these.
  std::string_view name = a.primitive().name();
  if (name == "Reshape") {
    return 0;
  }
  if (name != "Slice") {
    return std::nullopt;
  }
  auto [starts, ends, steps] = static_cast<Slice&>(a.primitive()).state();
  auto& whole = a.inputs()[0].shape();
  size_t before = 0, each = 1;
  bool is_cut = false;
  // From the last dimension on: what is left of the first one that is cut lies together, if there is one of all before it.
  for (size_t i = whole.size(); i-- > 0;) {
    if (steps[i] != 1 || (is_cut && a.shape(i) != 1)) {
      return std::nullopt;
    }
    is_cut = is_cut || a.shape(i) != whole[i];
    before += each * starts[i];
    each *= whole[i];
  }
  return before;
}

bool are_alike(const array& a, const array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype();
}

// What comes of `work`, which tells whether all is ready, and throws where something else than ours is in it.
template <typename F>
mlxrs_outcome outcome_of(const mlxrs_agreement& ranks, F work) {
  try {
    return work() ? MLXRS_DONE : MLXRS_NOT_YET;
  } catch (Foreign& foreign) {
    if (std::getenv("ML_TRACE_REPLAY")) {
      std::fprintf(stderr, "neither captured nor dispatched: %s\n", foreign.why.c_str());
    }
    if (ranks.is_strict) {
      throw std::runtime_error("this can neither be repeated nor sent past MLX: " + foreign.why);
    }
    // The operations themselves are as they were, so that nothing is lost but time.
    return MLXRS_IMPOSSIBLE;
  }
}

} // namespace

mlxrs_outcome agreed(const mlxrs_agreement& ranks, mlxrs_outcome own) {
  if (!ranks.agree) {
    return own;
  }
  int all = ranks.agree(ranks.data, own);
  if (all < 0) {
    throw std::runtime_error("ranks do not tell what they can repeat");
  }
  return static_cast<mlxrs_outcome>(all);
}

mlxrs_outcome Kept::record(
    const array& output,
    const std::vector<array>& moving,
    const std::vector<array>& fixed,
    bool follows,
    const mlxrs_agreement& ranks) {
  follows_ = follows;
  auto walked = outcome_of(ranks, [&] {
    walk(output, moving);
    return is_ready_;
  });
  // To keep operations of several ranks is an operation of all of them, and may fail in one.
  if (auto all = agreed(ranks, walked); all != MLXRS_DONE) {
    return all;
  }
  auto kept = outcome_of(ranks, [&] {
    keep_walked(output, fixed);
    return true;
  });
  return agreed(ranks, kept);
}

void Kept::walk(const array& output, const std::vector<array>& moving) {
  stream_ = output.primitive().stream();
  for (auto& a : moving) {
    ids_.insert_or_assign(a.id(), Place{Kind::Moving, moving_.size()});
    // Of the same form, and nothing else: what it is made of need not stay.
    moving_.push_back(zeros(a.shape(), a.dtype(), stream_));
  }
  visit(output);
}

void Kept::keep_walked(const array& output, const std::vector<array>& fixed) {
  for (auto& a : fixed) {
    if (a.status() == array::Status::unscheduled) {
      throw Foreign{};
    }
    auto found = ids_.find(a.id());
    if (follows_ && found != ids_.end() && found->second.kind == Kind::Leaf) {
      fixed_leaves_.insert_or_assign(found->second.index, fixed_.size());
    }
    fixed_.push_back({{address(a), a.dtype(), a.shape(), a.strides()}, a.shape(), follows_ && a.ndim() == 4});
  }
  build(output);
}

// Whether a fixed array is as it was, or, where it is followed, can take the place of what it was.
bool Kept::is_like(const array& a, const Fixed& known) const {
  if (a.status() == array::Status::unscheduled || a.dtype() != known.last.dtype) {
    return false;
  }
  if (!follows_) {
    return a.shape() == known.last.shape && a.strides() == known.last.strides && address(a) == known.last.address;
  }
  auto shape = a.shape();
  if (known.may_be_longer && shape.size() == 4 && shape[2] > known.first_shape[2]) {
    shape[2] = known.first_shape[2];
  }
  return shape == known.first_shape && a.flags().row_contiguous;
}

bool Kept::fits(const std::vector<array>& moving, const std::vector<array>& fixed) const {
  if (moving.size() != moving_.size() || fixed.size() != fixed_.size() || !is_whole_) {
    return false;
  }
  for (size_t i = 0; i < moving.size(); i++) {
    auto& a = moving[i];
    bool is_elsewhere =
        a.status() == array::Status::unscheduled && a.has_primitive() && a.primitive().stream() != stream_;
    if (is_elsewhere || !are_alike(a, moving_[i])) {
      return false;
    }
  }
  for (size_t i = 0; i < fixed.size(); i++) {
    auto& a = fixed[i];
    if (!is_like(a, fixed_[i])) {
      return false;
    }
    // Operations take the length of one of them for that of all that were as long.
    for (size_t j = 0; j < i; j++) {
      if (fixed_[j].first_shape == fixed_[i].first_shape && fixed[j].shape() != a.shape()) {
        return false;
      }
    }
  }
  auto is_moved = [this](const Leaf& leaf) { return address(leaf.of) != leaf.address; };
  return std::none_of(leaves_.begin(), leaves_.end(), is_moved) && address(*buffer_) == first_;
}

std::optional<array> Kept::run(std::vector<array> moving, const std::vector<array>& fixed) {
  if (!fits(moving, fixed)) {
    return std::nullopt;
  }
  // What comes before is on the stream once this returns.
  async_eval(moving);
  for (auto& a : moving) {
    if (!a.flags().row_contiguous) {
      return std::nullopt;
    }
  }
  if (follows_) {
    // What is changed in part is of no use.
    is_whole_ = false;
    follow(fixed);
    is_whole_ = true;
  }
  send(std::move(moving), moving_places_, follows_ ? fixed : std::vector<array>{});
  return output_;
}

void Kept::follow(const std::vector<array>& fixed) {
  std::vector<bool> is_elsewhere;
  for (size_t i = 0; i < fixed.size(); i++) {
    auto& last = fixed_[i].last;
    Operand now{address(fixed[i]), last.dtype, fixed[i].shape(), fixed[i].strides()};
    is_elsewhere.push_back(now.address != last.address || now.shape != last.shape || now.strides != last.strides);
    last = std::move(now);
  }
  std::vector<bool> is_changed(following_.size());
  for (auto& [operation, input, of] : followers_) {
    if (is_elsewhere[of]) {
      following_[operation].inputs[input] = fixed_[of].last;
      is_changed[operation] = true;
    }
  }
  for (size_t i = 0; i < following_.size(); i++) {
    if (is_changed[i]) {
      change(i, following_[i]);
    }
  }
}

Kept::Place Kept::visit(const array& a) {
  if (auto found = ids_.find(a.id()); found != ids_.end()) {
    return found->second;
  }
  if (a.status() != array::Status::unscheduled) {
    Place place{Kind::Leaf, leaves_.size()};
    leaves_.push_back({a, 0});
    ids_.insert_or_assign(a.id(), place);
    return place;
  }
  if (!a.has_primitive()) {
    throw Foreign{};
  }
  if (auto offset = offset_of_view(a)) {
    auto place = visit(a.inputs()[0]);
    if (place.kind != Kind::Made) {
      throw Foreign{"a view of what is made elsewhere"};
    }
    place.offset += *offset;
    ids_.insert_or_assign(a.id(), place);
    return place;
  }
  auto [is_ready, written] = known(a);
  is_ready_ = is_ready_ && is_ready;
  Step step{a.primitive_ptr(), {}, {}, {}};
  step.places.reserve(a.inputs().size());
  step.inputs.reserve(a.inputs().size());
  for (auto& input : a.inputs()) {
    auto place = visit(input);
    // What is made here has the strides that the device gives it; a view is row-major, as every new array.
    bool is_made = place.kind == Kind::Made && !offset_of_view(input);
    auto& made = is_made ? steps_[place.index].outputs[place.output] : input;
    step.places.push_back(place);
    step.inputs.push_back({0, input.dtype(), input.shape(), is_made ? strides(made) : input.strides()});
  }
  auto outputs = a.outputs();
  size_t own = outputs.size() - written.size();
  for (size_t i = 0; i < own; i++) {
    ids_.insert_or_assign(outputs[i].id(), Place{Kind::Made, steps_.size(), i});
  }
  for (size_t i = 0; i < written.size(); i++) {
    ids_.insert_or_assign(outputs[own + i].id(), step.places.at(written[i]));
  }
  step.outputs.assign(outputs.begin(), outputs.begin() + own);
  steps_.push_back(std::move(step));
  return ids_.at(a.id());
}

// Marks offsets in the buffer of what is left.
constexpr size_t IS_LEFT = size_t{1} << 62;

uint64_t Kept::address_at(size_t offset) const {
  return offset & IS_LEFT ? first_left_ + (offset & ~IS_LEFT) : first_ + offset;
}

// Moves what is left of operations to a buffer of its own: how many bytes that has. Nothing of the other one is read then, once they
// are through.
size_t Kept::set_apart(const std::vector<Place>& left, Offsets& offsets) const {
  size_t end = 0;
  for (auto& place : left) {
    if (place.kind != Kind::Made) {
      continue;
    }
    auto& offset = offsets[place.index][place.output];
    if (!(offset & IS_LEFT)) {
      offset = IS_LEFT | end;
      end += bytes_of(steps_[place.index].outputs[place.output]);
    }
  }
  return end;
}

// Where all outputs are in one buffer from `end` on, parts of which serve again once nothing reads them.
size_t Kept::place_outputs(const std::vector<Place>& kept, Offsets& offsets, size_t end) const {
  std::vector<std::vector<size_t>> last_reads;
  for (size_t i = 0; i < steps_.size(); i++) {
    last_reads.emplace_back(steps_[i].outputs.size(), i);
    for (auto& place : steps_[i].places) {
      if (place.kind == Kind::Made) {
        last_reads[place.index][place.output] = i;
      }
    }
  }
  for (auto& place : kept) {
    if (place.kind == Kind::Made) {
      last_reads[place.index][place.output] = steps_.size();
    }
  }
  struct Part {
    size_t offset, bytes, last_read;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < steps_.size(); i++) {
    offsets.emplace_back();
    for (size_t j = 0; j < steps_[i].outputs.size(); j++) {
      auto bytes = bytes_of(steps_[i].outputs[j]);
      auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& part) {
        return part.bytes == bytes && part.last_read < i;
      });
      if (part == parts.end()) {
        parts.push_back({end, bytes, 0});
        part = parts.end() - 1;
        end += bytes;
      }
      part->last_read = last_reads[i][j];
      offsets.back().push_back(part->offset);
    }
  }
  return end;
}

// The operations, whose outputs lie in the buffer.
std::vector<Kept::Operation> Kept::operations(const Offsets& offsets) {
  for (auto& leaf : leaves_) {
    leaf.address = address(leaf.of);
  }
  std::vector<Operation> operations;
  operations.reserve(steps_.size());
  for (size_t i = 0; i < steps_.size(); i++) {
    auto& step = steps_[i];
    Operation operation{step.primitive, std::move(step.inputs), {}};
    for (size_t j = 0; j < step.places.size(); j++) {
      auto& place = step.places[j];
      auto& address = operation.inputs[j].address;
      switch (place.kind) {
        case Kind::Moving:
          address = moving_places_[place.index];
          break;
        case Kind::Leaf:
          address = leaves_[place.index].address;
          break;
        case Kind::Made:
          address = address_at(offsets[place.index][place.output]) + place.offset;
          break;
      }
    }
    for (size_t j = 0; j < step.outputs.size(); j++) {
      auto& a = step.outputs[j];
      operation.outputs.push_back({address_at(offsets[i][j]), a.dtype(), a.shape(), strides(a)});
    }
    operations.push_back(std::move(operation));
  }
  return operations;
}

// A view of a part of a buffer.
array Kept::output_at(const array& like, size_t offset) const {
  auto& buffer = offset & IS_LEFT ? *left_ : *buffer_;
  auto place = static_cast<int64_t>((offset & ~IS_LEFT) / like.itemsize());
  array result(like.shape(), like.dtype(), nullptr, {});
  result.copy_shared_buffer(buffer, result.strides(), {true, true, false}, result.size(), place);
  return result;
}

array Kept::make_bytes(size_t bytes, bool is_left) {
  constexpr size_t WORD = 8;
  return make_words(static_cast<int>((std::max(bytes, ALIGNED) + WORD - 1) / WORD), is_left);
}

void Kept::make_buffer(size_t bytes) {
  buffer_ = make_bytes(bytes, false);
  first_ = address(*buffer_);
}

array Kept::make_words(int count, bool) {
  auto words = zeros({count}, uint64, stream_);
  async_eval({words});
  return words;
}

void Kept::build(const array& output) {
  auto kept = ids_.at(output.id());
  if (kept.kind != Kind::Made) {
    throw Foreign{};
  }
  size_t end = 0;
  for (auto& a : moving_) {
    moving_places_.push_back(end);
    end += bytes_of(a);
  }
  Offsets offsets;
  auto size = place_outputs({kept}, offsets, end);
  try {
    make_buffer(size);
  } catch (std::runtime_error& error) {
    // For want of memory: the operations themselves need less.
    throw Foreign{error.what()};
  }
  for (auto& place : moving_places_) {
    place += first_;
  }
  // A view of the output's part, so that the rest is what it is.
  array result = output_at(output, offsets[kept.index][kept.output] + kept.offset);
  result.set_status(array::Status::available);
  output_ = result;
  auto all = operations(offsets);
  auto following = find_followers(all);
  keep(std::move(all), following);
  if (follows_) {
    // Whoever has the arrays holds them.
    std::vector<Leaf> others;
    for (size_t i = 0; i < leaves_.size(); i++) {
      if (!fixed_leaves_.count(i)) {
        others.push_back(leaves_[i]);
      }
    }
    leaves_ = std::move(others);
  }
  // The operations of this pass are MLX's, and the arrays between them too.
  steps_.clear();
  ids_.clear();
}

std::vector<size_t> Kept::find_followers(const std::vector<Operation>& operations) {
  std::vector<size_t> following;
  for (size_t i = 0; i < operations.size() && follows_; i++) {
    for (size_t j = 0; j < steps_[i].places.size(); j++) {
      auto& place = steps_[i].places[j];
      auto found = place.kind == Kind::Leaf ? fixed_leaves_.find(place.index) : fixed_leaves_.end();
      if (found == fixed_leaves_.end()) {
        continue;
      }
      if (following.empty() || following.back() != i) {
        following.push_back(i);
        following_.push_back(operations[i]);
      }
      followers_.push_back({following.size() - 1, j, found->second});
      auto& fixed = fixed_[found->second];
      fixed.may_be_longer = fixed.may_be_longer && takes_length(operations[i], j);
    }
  }
  return following;
}

std::optional<size_t> Kept::offset_of_view(const array& a) {
  if (!takes_views() || !a.has_primitive() || a.inputs().size() != 1) {
    return std::nullopt;
  }
  auto& of = a.inputs()[0];
  auto before = elements_before(a);
  bool is_of_ours = before && of.status() == array::Status::unscheduled && (offset_of_view(of) || is_made_here(of));
  return is_of_ours ? std::optional(*before * a.itemsize()) : std::nullopt;
}

bool Kept::is_own(const array& a) {
  return offset_of_view(a) || is_made_here(a);
}

bool Kept::is_made_here(const array& a) {
  if (!a.has_primitive()) {
    return false;
  }
  try {
    is_ready_ = known(a).is_ready && is_ready_;
    return true;
  } catch (Foreign&) {
    return false;
  }
}

// What is not ours among that which `a` is made of, as far as only ours is behind it.
void Kept::find_foreign(const array& a, std::vector<array>& found, std::unordered_set<std::uintptr_t>& seen) {
  if (a.status() != array::Status::unscheduled || !seen.insert(a.id()).second) {
    return;
  }
  if (!is_own(a)) {
    found.push_back(a);
    return;
  }
  for (auto& input : a.inputs()) {
    find_foreign(input, found, seen);
  }
}

// Whether nothing that writes in place is among that which `a` is made of.
bool Kept::is_apart(const array& a, std::unordered_set<std::uintptr_t>& seen) {
  if (a.status() != array::Status::unscheduled || !seen.insert(a.id()).second) {
    return true;
  }
  bool is_of_stream = a.has_primitive() && a.primitive().stream() == stream_;
  return is_of_stream && (!is_made_here(a) || known(a).written.empty()) &&
      std::all_of(a.inputs().begin(), a.inputs().end(), [&](const array& input) { return is_apart(input, seen); });
}

mlxrs_outcome Kept::dispatch(const std::vector<array>& outputs, const mlxrs_agreement& ranks) {
  std::vector<array> made;
  for (auto& a : outputs) {
    if (a.status() == array::Status::unscheduled) {
      made.push_back(a);
    }
  }
  if (made.empty()) {
    return MLXRS_DONE;
  }
  std::vector<array> before;
  auto found = outcome_of(ranks, [&] {
    if (!made[0].has_primitive()) {
      throw Foreign{};
    }
    stream_ = made[0].primitive().stream();
    std::unordered_set<std::uintptr_t> seen, apart;
    for (auto& a : made) {
      find_foreign(a, before, seen);
    }
    for (auto& a : before) {
      if (!is_apart(a, apart)) {
        throw Foreign{a.has_primitive() ? a.primitive().name() : "an array that nothing makes"};
      }
    }
    return is_ready_;
  });
  if (auto all = agreed(ranks, found); all != MLXRS_DONE) {
    return all;
  }
  // What comes before is on the stream once this returns.
  async_eval(before);
  std::vector<Place> places;
  std::vector<Operation> sent;
  Offsets offsets;
  auto placed = outcome_of(ranks, [&] {
    for (auto& a : made) {
      places.push_back(visit(a));
    }
    auto bytes = place_outputs({}, offsets, 0);
    left_ = make_bytes(set_apart(places, offsets), true);
    first_left_ = address(*left_);
    make_buffer(bytes);
    sent = operations(offsets);
    return true;
  });
  if (auto all = agreed(ranks, placed); all != MLXRS_DONE) {
    return all;
  }
  send_once(sent);
  for (size_t i = 0; i < made.size(); i++) {
    auto& [kind, index, output, offset] = places[i];
    auto& a = made[i];
    if (kind == Kind::Made) {
      a.copy_shared_buffer(output_at(a, offsets[index][output] + offset));
    } else {
      a.copy_shared_buffer(leaves_[index].of);
    }
    a.set_status(array::Status::available);
  }
  for (auto& a : made) {
    a.detach();
  }
  return MLXRS_DONE;
}

std::vector<array> Kept::held() const {
  std::vector<array> held;
  for (auto& leaf : leaves_) {
    held.push_back(leaf.of);
  }
  for (auto* buffer : {&buffer_, &left_}) {
    if (*buffer) {
      held.push_back(**buffer);
    }
  }
  return held;
}

} // namespace mlxrs

extern "C" int mlxrs_replay_new(
    mlxrs_replay* res,
    mlxrs_outcome* outcome,
    const mlx_array output,
    const mlx_vector_array moving,
    const mlx_vector_array fixed,
    bool overlap,
    bool follows,
    mlxrs_agreement agreement) {
  // What earlier operations of the stream failed with is said to the first who sends more.
  return mlxrs::guarded([&] {
    res->ctx = nullptr;
    auto& a = mlx_array_get_(output);
    std::unique_ptr<mlxrs::Kept> kept;
    if (a.has_primitive()) {
      bool on_gpu = a.primitive().stream().device == Device::gpu;
      kept = on_gpu ? mlxrs::kept_on_cuda(overlap) : mlxrs::kept_on_cpu();
    }
    if (!kept) {
      *outcome = mlxrs::agreed(agreement, MLXRS_IMPOSSIBLE);
      return;
    }
    *outcome = kept->record(a, mlx_vector_array_get_(moving), mlx_vector_array_get_(fixed), follows, agreement);
    res->ctx = *outcome == MLXRS_DONE ? kept.release() : nullptr;
  });
}

extern "C" int mlxrs_replay_fits(
    bool* res,
    mlxrs_replay replay,
    const mlx_vector_array moving,
    const mlx_vector_array fixed) {
  return mlxrs::guarded([&] {
    *res = static_cast<mlxrs::Kept*>(replay.ctx)->fits(mlx_vector_array_get_(moving), mlx_vector_array_get_(fixed));
  });
}

extern "C" int mlxrs_replay_run(
    mlx_vector_array* res,
    mlxrs_replay replay,
    const mlx_vector_array moving,
    const mlx_vector_array fixed) {
  return mlxrs::guarded([&] {
    auto output = static_cast<mlxrs::Kept*>(replay.ctx)->run(
        mlx_vector_array_get_(moving), mlx_vector_array_get_(fixed));
    std::vector<array> found;
    if (output) {
      found.push_back(*output);
    }
    mlx_vector_array_set_(*res, std::move(found));
  });
}

extern "C" int mlxrs_replay_wait(mlxrs_replay replay) {
  return mlxrs::guarded([&] { static_cast<mlxrs::Kept*>(replay.ctx)->wait(); });
}

extern "C" int mlxrs_dispatcher_new(mlxrs_dispatcher* res) {
  return mlxrs::guarded([&] {
    res->ctx = mlxrs::dispatched_on_cuda().release();
  });
}

extern "C" int mlxrs_dispatch(
    mlxrs_outcome* res,
    mlxrs_dispatcher dispatcher,
    const mlx_vector_array outputs,
    mlxrs_agreement agreement) {
  return mlxrs::guarded([&] {
    auto* dispatched = static_cast<mlxrs::Dispatched*>(dispatcher.ctx);
    try {
      *res = dispatched ? dispatched->send(mlx_vector_array_get_(outputs), agreement)
                        : mlxrs::agreed(agreement, MLXRS_IMPOSSIBLE);
    } catch (mlxrs::Foreign& foreign) {
      // The operations themselves are as they were; but other ranks have sent them.
      if (agreement.agree) {
        throw std::runtime_error("CUDA refuses operations that all ranks send: " + foreign.why);
      }
      *res = MLXRS_IMPOSSIBLE;
    }
  });
}

extern "C" int mlxrs_dispatcher_wait(mlxrs_dispatcher dispatcher) {
  return mlxrs::guarded([&] {
    if (auto* dispatched = static_cast<mlxrs::Dispatched*>(dispatcher.ctx)) {
      dispatched->wait();
    }
  });
}

extern "C" void mlxrs_dispatcher_rest(mlxrs_dispatcher dispatcher) {
  if (auto* dispatched = static_cast<mlxrs::Dispatched*>(dispatcher.ctx)) {
    dispatched->rest();
  }
}

extern "C" void mlxrs_dispatcher_free(mlxrs_dispatcher dispatcher) {
  delete static_cast<mlxrs::Dispatched*>(dispatcher.ctx);
}

extern "C" void mlxrs_replay_free(mlxrs_replay replay) {
  delete static_cast<mlxrs::Kept*>(replay.ctx);
}
