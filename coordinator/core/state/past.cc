#include "coordinator/core/state/past.h"

#include <algorithm>

namespace atl::coordinator {

bool IsSuperseded(const std::deque<v1::Restore>& restores, int64_t commit_seq) {
  return std::any_of(restores.begin(), restores.end(),
                     [&](const v1::Restore& restore) {
                       return restore.cut_commit_seq() <= commit_seq &&
                              commit_seq < restore.commit_seq();
                     });
}

int64_t SkipToPast(const std::deque<v1::Restore>& restores,
                   int64_t commit_seq) {
  // Later restores have larger numbers, and one may begin in another's gap.
  for (bool moved = true; moved;) {
    moved = false;
    for (const v1::Restore& restore : restores) {
      if (restore.cut_commit_seq() <= commit_seq &&
          commit_seq <= restore.commit_seq()) {
        commit_seq = restore.commit_seq() + 1;
        moved = true;
      }
    }
  }
  return commit_seq;
}

int64_t FindGap(const std::deque<v1::Restore>& restores, int64_t commit_seq,
                int64_t end) {
  for (const v1::Restore& restore : restores) {
    if (restore.cut_commit_seq() > commit_seq) {
      end = std::min(end, restore.cut_commit_seq());
    }
  }
  return end;
}

int64_t CountPast(const std::deque<v1::Restore>& restores, int64_t begin,
                  int64_t end) {
  int64_t count = 0;
  for (int64_t at = SkipToPast(restores, begin); at < end;
       at = SkipToPast(restores, at)) {
    const int64_t gap = FindGap(restores, at, end);
    count += gap - at;
    at = gap;
  }
  return count;
}

void AddRestore(const v1::Restore& restore, std::deque<v1::Restore>& restores) {
  restores.push_back(restore);
  if (restores.size() <= kRestoresMax) return;
  const auto hidden =
      std::find_if(restores.begin(), restores.end(), [&](const auto& one) {
        return std::any_of(restores.begin(), restores.end(),
                           [&](const v1::Restore& later) {
                             return one.commit_seq() < later.commit_seq() &&
                                    later.cut_commit_seq() <=
                                        one.cut_commit_seq();
                           });
      });
  if (hidden != restores.end()) {
    restores.erase(hidden);
    return;
  }
  // Its commits, and its own number, which no commit has, stay out of the past.
  restores[1].set_cut_commit_seq(restores[0].cut_commit_seq());
  restores.pop_front();
}

}  // namespace atl::coordinator
