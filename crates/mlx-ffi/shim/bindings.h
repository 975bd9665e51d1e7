// Everything that src/bindings.rs declares. MLX's readers of npy and gguf files
// are left out on purpose: they trust the sizes that a file states.
#include "mlx/c/mlx.h"
#include "allocate.h"
#include "cpu_operation.h"
#include "cuda_launch.h"
#include "dense.h"
#include "device_memory.h"
#include "environment.h"
#include "map_order.h"
#include "nccl.h"
#include "recover.h"
#include "replay.h"
#include "upload.h"
