// Optional features of the CUDA operations. Pure.

#pragma once

namespace atl::engine::cuda {

struct CudaOptions {
  // Records steps as CUDA graphs and replays them, if possible.
  bool graphs = true;
  // kBf16 attention by a library, for the shapes that it supports.
  bool fused_attention = true;
};

}  // namespace atl::engine::cuda
