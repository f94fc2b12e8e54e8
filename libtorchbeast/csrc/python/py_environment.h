// Python environments behind the server's EnvironmentBatch.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "env_server.h"

namespace torchbeast {

// V environments made by calling `env_init` V times. Environments follow Gymnasium
// (reset() -> observation, info; step() -> observation, reward, terminated, truncated, info) or the
// older gym (reset() -> observation; step() -> observation, reward, done, info). They are reset as
// soon as an episode ends. `info["game_over"]`, where present, says whether the full game ended
// with the episode. Call with the GIL held; the result may be destroyed without it.
std::unique_ptr<EnvironmentBatch> MakePythonEnvironments(nanobind::object env_init,
                                                         int64_t num_environments);

}  // namespace torchbeast
