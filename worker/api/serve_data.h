// An HTTPS server of published data, for enrolled islands.

#pragma once

#include "worker/data/serve/data_server.h"  // IWYU pragma: export
