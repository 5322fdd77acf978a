#include "cli/run_file/nearest.h"

#include <algorithm>

namespace atl::cli {

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(columns));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string NearestName(absl::string_view word,
                        const std::vector<std::string>& names) {
  std::string best;
  int best_distance = 0;
  for (const std::string& name : names) {
    const int longer = static_cast<int>(std::max(word.size(), name.size()));
    const int distance = EditDistance(word, name);
    if (distance > (longer + 2) / 3) continue;
    if (best.empty() || distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace atl::cli
