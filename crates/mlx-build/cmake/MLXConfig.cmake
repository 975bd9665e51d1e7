# What mlx-c asks of MLX while it is compiled: headers, and nothing else.
# The file in the wheels asks for CUDA's toolkit too, and mlx-c needs none of it.
add_library(mlx INTERFACE IMPORTED)
target_include_directories(mlx INTERFACE "${MLX_INCLUDE}")
