// Runs a kernel on a processor: threads of a block are contexts that take turns, one block runs after the other. Whatever all
// threads of a block, or all lanes of a warp, do together ends only once all have come. Who never comes is an error, and so is what
// lies outside of buffers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "kernel.h"

Seen* current;
dim3 blockIdx, blockDim, gridDim;
unsigned launches;

void fail(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::_Exit(1);
}

namespace {

constexpr size_t STACK = 96 << 10;

#if defined(__x86_64__)
// `swapcontext` calls the system each time, which takes several times as long.
extern "C" void switch_stacks(void** from, void* to);
asm(".text\n"
    "switch_stacks:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
    "ret\n");

struct Context {
  void* stack;

  void begin(char* stack_end, void (*entry)()) {
    // What is taken from it first: six registers, and where to go on.
    auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack_end) / 16 * 16) - 8;
    std::fill(top, top + 6, nullptr);
    top[6] = reinterpret_cast<void*>(entry);
    stack = top;
  }

  void go_to(Context& other) {
    switch_stacks(&stack, other.stack);
  }
};
#else
struct Context {
  ucontext_t context;

  void begin(char* stack_end, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack_end - STACK;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
  }

  void go_to(Context& other) {
    swapcontext(&context, &other.context);
  }
};
#endif

// A copy that is under way until it is waited for.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool is_there;
};

struct Warp {
  // Of this meeting and of the next: who comes to that has read what this one brought.
  alignas(16) unsigned char values[2][LANES_OF_WARP][MOST_BROUGHT];
  int count{0}, lanes{0}, alive{0};
  Meeting kind{WARP};
  unsigned finished{0};
};

struct Thread : Seen {
  Context context;
  std::unique_ptr<char[]> stack;
  Warp* warp;
  bool has_ended;
  // What it waits for: the end of so many meetings of its warp, and of its block.
  unsigned of_warp, of_block;
  // The last group is not complete.
  std::deque<std::vector<Copy>> copies;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Context scheduler;
  int count, alive;
  unsigned finished;

  void end_meeting() {
    if (alive > 0 && count == alive) {
      count = 0;
      finished++;
    }
  }
};

Block block;
Input* all_inputs;
unsigned char** all_outputs;

Thread& own() {
  return *static_cast<Thread*>(current);
}

void let_others_run() {
  own().context.go_to(block.scheduler);
}

void thread() {
  run_thread(all_inputs, all_outputs);
  // Groups may be waited for together at the end, but none is left alone.
  auto is_empty = [](const std::vector<Copy>& group) { return group.empty(); };
  auto& copies = own().copies;
  if (!std::all_of(copies.begin(), copies.end(), is_empty)) {
    fail("a thread ends before its copies");
  }
  own().has_ended = true;
  own().warp->alive--;
  block.alive--;
  if (own().warp->count > 0) {
    fail("lanes of a warp meet, and one of them has ended");
  }
  block.end_meeting();
  let_others_run();
}

// A block of so many threads. Backwards, so that what depends on the order of warps shows.
void run_block(dim3 size, bool is_backwards) {
  int count = size.x * size.y * size.z;
  block.count = 0;
  block.alive = count;
  block.finished = 0;
  block.warps = std::vector<Warp>((count + LANES_OF_WARP - 1) / LANES_OF_WARP);
  block.threads.resize(count);
  for (int i = 0; i < count; i++) {
    auto& thread = block.threads[i];
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.lane = i % LANES_OF_WARP;
    thread.warp = &block.warps[i / LANES_OF_WARP];
    thread.warp->lanes++;
    thread.warp->alive++;
    thread.has_ended = false;
    thread.of_warp = thread.of_block = 0;
    thread.copies.assign(1, {});
    if (!thread.stack) {
      thread.stack.reset(new char[STACK]);
    }
    thread.context.begin(thread.stack.get() + STACK, ::thread);
  }
  auto of_warp = [&](int warp) {
    bool has_run = false;
    for (bool runs = true; runs;) {
      runs = false;
      for (int i = warp * LANES_OF_WARP; i < std::min(count, (warp + 1) * LANES_OF_WARP); i++) {
        auto& thread = block.threads[i];
        bool waits = thread.of_warp > thread.warp->finished || thread.of_block > block.finished;
        if (!thread.has_ended && !waits) {
          current = &thread;
          block.scheduler.go_to(thread.context);
          runs = has_run = true;
        }
      }
    }
    return has_run;
  };
  // A warp goes as far as it can before the next one does, so that a barrier that is missing shows.
  int warps = static_cast<int>(block.warps.size());
  while (block.alive > 0) {
    bool has_run = false;
    for (int i = 0; i < warps; i++) {
      has_run = of_warp(is_backwards ? warps - 1 - i : i) || has_run;
    }
    if (!has_run) {
      fail("threads of a block wait for others that do not come");
    }
  }
}

void load(unsigned* to, const void* row, bool are_columns) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    fail("a row of a matrix does not begin at sixteen bytes");
  }
  auto rows = exchange(MATRIX, row);
  for (int i = 0; i < 4; i++) {
    uint16_t both[2];
    for (int j = 0; j < 2; j++) {
      int at = current->lane / 4, column = current->lane % 4 * 2 + j;
      if (are_columns) {
        std::swap(at, column);
      }
      both[j] = static_cast<const uint16_t*>(of_lane<const void*>(rows, i * 8 + at))[column];
    }
    to[i] = both[0] | static_cast<unsigned>(both[1]) << 16;
  }
}

// The bytes of a buffer in sixteens, and those of the pages that it lies in.
struct Extent {
  size_t whole, pages, page;

  explicit Extent(size_t bytes) : whole((bytes + 15) / 16 * 16), page(sysconf(_SC_PAGESIZE)) {
    pages = (whole + page - 1) / page * page;
  }
};

// A buffer behind whose last sixteen bytes nothing can be read or written.
unsigned char* buffer_of(size_t bytes) {
  auto [whole, pages, page] = Extent(bytes);
  auto* memory = static_cast<unsigned char*>(
      mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED || mprotect(memory + pages, page, PROT_NONE) != 0) {
    fail("no memory");
  }
  // What lies behind is no number.
  memset(memory, 0xff, pages);
  return memory + pages - whole;
}

void give_back(unsigned char* first, size_t bytes) {
  auto [whole, pages, page] = Extent(bytes);
  munmap(first + whole - pages, pages + page);
}

void read_all(void* to, size_t bytes) {
  if (std::fread(to, 1, bytes, stdin) != bytes) {
    fail("less input than was told");
  }
}

} // namespace

void __syncthreads() {
  own().of_block++;
  block.count++;
  block.end_meeting();
  let_others_run();
}

const void* exchange(Meeting kind, const void* brought, size_t bytes) {
  auto& warp = *own().warp;
  if (warp.alive < warp.lanes) {
    fail("lanes of a warp meet, and one of them has ended");
  }
  if (warp.count > 0 && warp.kind != kind) {
    fail("lanes of a warp meet at different places");
  }
  warp.kind = kind;
  auto& values = warp.values[own().of_warp % 2];
  memcpy(values[current->lane], brought, bytes);
  own().of_warp++;
  if (++warp.count == warp.alive) {
    warp.count = 0;
    warp.finished++;
  }
  let_others_run();
  return values;
}

void load_matrices(unsigned* to, const void* row) {
  load(to, row, false);
}

void load_transposed(unsigned* to, const void* row) {
  load(to, row, true);
}

unsigned transposed(unsigned of_row) {
  auto rows = exchange(TURN, of_row);
  unsigned found = 0;
  for (int j = 0; j < 2; j++) {
    int column = current->lane / 4, row = current->lane % 4 * 2 + j;
    found |= (of_lane<unsigned>(rows, row * 4 + column / 2) >> column % 2 * 16 & 0xffff) << 16 * j;
  }
  return found;
}

void copy_bytes_ahead(void* to, const void* from, size_t bytes, bool is_there) {
  auto bits = reinterpret_cast<uintptr_t>(to) | (is_there ? reinterpret_cast<uintptr_t>(from) : 0);
  if (bits % bytes != 0) {
    fail("a copy does not begin at a multiple of its bytes");
  }
  own().copies.back().push_back({to, from, bytes, is_there});
}

void end_copies() {
  own().copies.emplace_back();
}

void wait_for_all_copies_but(size_t groups) {
  auto& all = own().copies;
  while (all.size() > groups + 1) {
    for (auto& [to, from, bytes, is_there] : all.front()) {
      is_there ? memcpy(to, from, bytes) : memset(to, 0, bytes);
    }
    all.pop_front();
  }
}

namespace {

// One launch, of a grid of so many threads.
void launch(const int* grid, bool are_backwards) {
  launches++;
  int threads[3];
  read_all(threads, sizeof(threads));
  auto blocks = [&](int i) { return static_cast<unsigned>((grid[i] + threads[i] - 1) / threads[i]); };
  auto extent = [&](int i) { return static_cast<unsigned>(std::min(grid[i], threads[i])); };
  gridDim = {blocks(0), blocks(1), blocks(2)};
  blockDim = {extent(0), extent(1), extent(2)};
  std::vector<uint64_t> sizes(OF_OUTPUTS);
  std::vector<unsigned char*> outputs;
  for (auto& size : sizes) {
    read_all(&size, sizeof(size));
    outputs.push_back(buffer_of(size));
  }
  std::vector<Input> inputs(OF_INPUTS);
  for (auto& input : inputs) {
    read_all(&input.shape, sizeof(input.shape));
    read_all(&input.strides, sizeof(input.strides));
    read_all(&input.dims, sizeof(input.dims));
    read_all(&input.bytes, sizeof(input.bytes));
    input.data = buffer_of(input.bytes);
    read_all(input.data, input.bytes);
  }
  all_inputs = inputs.data();
  all_outputs = outputs.data();
  unsigned all = gridDim.x * gridDim.y * gridDim.z;
  for (unsigned i = 0; i < all; i++) {
    unsigned at = are_backwards ? all - 1 - i : i;
    blockIdx = {at % gridDim.x, at / gridDim.x % gridDim.y, at / gridDim.x / gridDim.y};
    auto left = [&](int i, unsigned block) {
      unsigned all = extent(i), rest = static_cast<unsigned>(grid[i]) - block * all;
      return HAS_PARTIAL_BLOCKS ? std::min(all, rest) : all;
    };
    run_block({left(0, blockIdx.x), left(1, blockIdx.y), left(2, blockIdx.z)}, are_backwards);
  }
  for (int i = 0; i < OF_OUTPUTS; i++) {
    std::fwrite(outputs[i], 1, sizes[i], stdout);
  }
  for (int i = 0; i < OF_WRITTEN; i++) {
    std::fwrite(inputs[WRITTEN[i]].data, 1, inputs[WRITTEN[i]].bytes, stdout);
  }
  std::fflush(stdout);
  for (int i = 0; i < OF_OUTPUTS; i++) {
    give_back(outputs[i], sizes[i]);
  }
  for (auto& input : inputs) {
    give_back(input.data, input.bytes);
  }
}

} // namespace

// Launches come until the input ends.
int main(int count, char** words) {
  bool are_backwards = count > 1 && words[1][0] == 'b';
  int grid[3];
  while (std::fread(grid, 1, sizeof(grid), stdin) == sizeof(grid)) {
    launch(grid, are_backwards);
  }
}
