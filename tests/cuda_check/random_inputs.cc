#include "tests/cuda_check/random_inputs.h"

namespace atl::engine::check {

std::vector<float> RandomParameters(const ParameterLayout& layout,
                                    std::mt19937_64& random) {
  std::vector<float> parameters(layout.element_count);
  for (const ParameterSpec& spec : layout.parameters) {
    const bool constant = spec.init == ParameterInit::kConstant;
    std::normal_distribution<float> normal(
        constant ? static_cast<float>(spec.init_value) : 0.0f, 0.08f);
    for (int64_t i = 0; i < spec.element_count; ++i) {
      parameters[spec.offset + i] = normal(random);
    }
  }
  return parameters;
}

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab,
                                  std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> token(0,
                                               static_cast<int32_t>(vocab) - 1);
  std::vector<int32_t> tokens(count);
  for (int32_t& t : tokens) t = token(random);
  return tokens;
}

}  // namespace atl::engine::check
