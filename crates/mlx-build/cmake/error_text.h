// mlx-c hands MLX's messages on as format strings. They quote file names and
// headers, so a `%` in a file would be read as an order to print something.
#pragma once
// Absent while cmake tries out the compiler.
#if __has_include("mlx/c/error.h")
#include "mlx/c/error.h"
#undef mlx_error
#define mlx_error(message) _mlx_error(__FILE__, __LINE__, "%s", message)
#endif
