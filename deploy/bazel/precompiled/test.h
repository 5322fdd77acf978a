// Third-party headers that most tests include: library.h and GoogleTest.

#ifndef DEPLOY_BAZEL_PRECOMPILED_TEST_H_
#define DEPLOY_BAZEL_PRECOMPILED_TEST_H_

#include "deploy/bazel/precompiled/library.h"
#include "gtest/gtest.h"

#endif  // DEPLOY_BAZEL_PRECOMPILED_TEST_H_
