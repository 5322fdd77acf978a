// Tests for every world. A program instantiates BehaviourTest with its own.

#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/collective.h"
#include "worker/collective/group.h"

namespace atl::collective {

// A world and its ranks; the ranks end first.
class TestWorld {
 public:
  virtual ~TestWorld() = default;
  std::vector<std::unique_ptr<Collective>>& ranks() { return ranks_; }

 protected:
  std::vector<std::unique_ptr<Collective>> ranks_;
};

struct WorldKind {
  std::string name;
  int size = 0;
  std::function<std::unique_ptr<TestWorld>(const WorldOptions&)> make;
};

inline std::ostream& operator<<(std::ostream& out, const WorldKind& kind) {
  return out << kind.name;
}

class BehaviourTest : public testing::TestWithParam<WorldKind> {
 protected:
  BehaviourTest();
  std::vector<std::unique_ptr<Collective>>& Make(
      absl::Duration timeout = absl::Minutes(2));

  const uint64_t seed_;
  std::unique_ptr<TestWorld> world_;
};

}  // namespace atl::collective
