// Third-party headers that most tests include: library.h and GoogleTest.

#pragma once

#include "deploy/bazel/precompiled/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
