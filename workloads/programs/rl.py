"""Reinforcement learning: a policy plays a simulator on the host, then is updated four times."""

from __future__ import annotations

import numpy as np
import torch
from common import StepClock, device, options
from torch import nn

ROUNDS, UPDATES = 24, 4


class Pendulums:
    """Many pendulums to be held upright, simulated one after the other, as plain Python does."""

    def __init__(self, count: int) -> None:
        self.angle, self.speed = np.random.uniform(-0.1, 0.1, (2, count))

    def observe(self) -> np.ndarray:
        """Pendulum × (angle, speed)."""
        return np.stack([self.angle, self.speed], 1).astype(np.float32)

    def step(self, force: np.ndarray) -> np.ndarray:
        """Rewards of one time step under these forces."""
        reward = np.empty(len(force), np.float32)
        for i, push in enumerate(force):
            self.speed[i] += 0.05 * (9.8 * np.sin(self.angle[i]) + push)
            self.angle[i] += 0.05 * self.speed[i]
            if abs(self.angle[i]) > 1:
                self.angle[i], self.speed[i] = 0.0, 0.0
            reward[i] = 1.0 - abs(self.angle[i])
        return reward


def main() -> None:
    """Train."""
    given = options(__doc__, "host").parse_args()
    count, width = (4, 16) if given.tiny else (64, 4096)
    gpu = device()
    layers = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.Tanh()]
    policy = nn.Sequential(*layers, nn.Linear(width, 1)).to(gpu)
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4)
    world, rollout = Pendulums(count), None
    clock = StepClock(given.steps, given.timed)
    for _ in range(given.steps):
        if rollout is None or not given.no_host:
            rollout = _play(policy, world, gpu)
        seen, done, advantage = rollout
        for _ in range(UPDATES):
            chance = torch.distributions.Normal(policy(seen).squeeze(-1), 1.0).log_prob(done)
            loss = -(chance * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        clock.tick()


@torch.no_grad()
def _play(policy: nn.Module, world: Pendulums, gpu: torch.device) -> tuple[torch.Tensor, ...]:
    seen, done, rewards = [], [], []
    for _ in range(ROUNDS):
        now = torch.from_numpy(world.observe()).to(gpu)
        force = torch.normal(policy(now).squeeze(-1), 1.0)
        rewards.append(torch.from_numpy(world.step(force.cpu().numpy())))
        seen.append(now)
        done.append(force)
    gain = torch.stack(rewards).flip(0).cumsum(0).flip(0).to(gpu)
    return torch.cat(seen), torch.cat(done), (gain - gain.mean()).flatten()


if __name__ == "__main__":
    main()
