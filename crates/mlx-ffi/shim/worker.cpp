#include "worker.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_driver.h"
#include "guarded.h"
#include "mlx/c/private/stream.h"
#include "mlx_internals.h"
#include "replay.h"

namespace mlxrs {
namespace {

// How long MLX's thread may take to end. It ends behind its last task, which only gives memory back.
constexpr auto PATIENCE = std::chrono::seconds(10);

// Workers whose encoders are gone. What they have of CUDA's goes with them, and CUDA may be shutting down when a thread ends: so
// the next thread that uses the device lets them go.
struct Ended {
  std::mutex mutex;
  std::vector<std::shared_ptr<Worker>> workers;

  void add(std::shared_ptr<Worker> worker) {
    std::lock_guard lock(mutex);
    workers.push_back(std::move(worker));
  }

  void clear() {
    std::vector<std::shared_ptr<Worker>> gone;
    std::lock_guard lock(mutex);
    gone.swap(workers);
  }
};

Ended& ended() {
  static auto* ended = new Ended;
  return *ended;
}

// Runs the tasks of a worker that are due, and waits for more.
void work(Worker& worker) {
  // What it frees must not end what MLX captures on another thread.
  mlxrs_relax_captures();
  uint64_t done = 0;
  std::unique_lock lock(worker.mutex);
  while (!worker.stops) {
    worker.changed.wait(lock, [&] { return worker.signaled > done || worker.stops; });
    done = worker.signaled;
    auto end = worker.tasks.upper_bound(done);
    std::map<uint64_t, Tasks> due;
    while (worker.tasks.begin() != end) {
      due.insert(worker.tasks.extract(worker.tasks.begin()));
    }
    lock.unlock();
    for (auto& [batch, tasks] : due) {
      for (auto& task : tasks) {
        task();
        // What it holds goes before the next one runs, as with MLX.
        task = nullptr;
      }
    }
    lock.lock();
  }
}

// Ends MLX's thread. False where it does not end.
bool end_thread(const std::shared_ptr<Worker>& worker) {
  {
    std::lock_guard lock(worker->mutex);
    worker->stops = true;
  }
  worker->changed.notify_all();
  // Its own share goes as it ends. The encoder has one, and we have one.
  auto until = std::chrono::steady_clock::now() + PATIENCE;
  while (worker.use_count() > 2 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::lock_guard lock(worker->mutex);
  worker->stops = false;
  return worker.use_count() <= 2;
}

void replace(mlx::core::Stream stream) {
  // The last one that this thread replaced: a thread has one stream of a device.
  thread_local std::weak_ptr<void> replaced;
  auto& encoder = *static_cast<Encoder*>(cuda()->encoder(stream));
  if (replaced.lock() == encoder.worker) {
    return;
  }
  ended().clear();
  auto worker = std::static_pointer_cast<Worker>(encoder.worker);
  if (end_thread(worker)) {
    replaced = encoder.worker;
    // It ends with the encoder, as MLX's does, and holds what it uses.
    std::thread([worker = std::move(worker)]() mutable {
      work(*worker);
      ended().add(std::move(worker));
    }).detach();
  }
}

} // namespace
} // namespace mlxrs

extern "C" int mlxrs_replace_worker(mlx_stream stream) {
  return mlxrs::guarded([&] {
    if (mlxrs::cuda() && mlxrs::internals_are_known()) {
      mlxrs::replace(mlx_stream_get_(stream));
    }
  });
}
