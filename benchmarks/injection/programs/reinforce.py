"""REINFORCE with a baseline, on a pole that is balanced in Python."""

import argparse
import math
import random

import torch
import torch.nn.functional as F
from torch import nn


class CartPole:
    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        x, v, theta, omega = self.state
        force = 10.0 if action else -10.0
        cos, sin = math.cos(theta), math.sin(theta)
        temp = (force + 0.05 * omega * omega * sin) / 1.1
        alpha = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        accel = temp - 0.05 * alpha * cos / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * accel, theta + 0.02 * omega, omega + 0.02 * alpha]
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state, 1.0, done


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden))
        self.actor = nn.Linear(hidden, 2)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, state):
        x = torch.tanh(self.body(state))
        return self.actor(x), self.critic(x).squeeze(-1)


def rollout(envs, states, length):
    observed, actions, rewards = [], [], []
    for _ in range(length):
        observed.append([list(state) for state in states])
        chosen = [random.randrange(2) for _ in envs]
        gained = []
        for i, env in enumerate(envs):
            states[i], reward, done = env.step(chosen[i])
            gained.append(reward)
            if done:
                states[i] = env.reset()
        actions.append(chosen)
        rewards.append(gained)
    return observed, actions, rewards


def discounted(rewards, gamma):
    returns = torch.zeros(len(rewards), len(rewards[0]))
    running = torch.zeros(len(rewards[0]))
    for t in reversed(range(len(rewards))):
        running = torch.tensor(rewards[t]) + gamma * running
        returns[t] = running
    return returns


def update(policy, optimizer, observed, actions, returns, device):
    states = torch.tensor(observed).to(device)
    chosen = torch.tensor(actions).to(device)
    returns = returns.to(device)
    logits, values = policy(states)
    advantage = returns - values
    logp = F.log_softmax(logits, -1).gather(-1, chosen[..., None]).squeeze(-1)
    loss = -(logp * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--updates", type=int, default=2000)
    args = parser.parse_args()
    random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = [CartPole() for _ in range(args.envs)]
    states = [env.reset() for env in envs]
    policy = Policy(args.hidden).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for number in range(args.updates):
        observed, actions, rewards = rollout(envs, states, args.length)
        returns = discounted(rewards, 0.99)
        loss = update(policy, optimizer, observed, actions, returns, device)
        if number % 100 == 0:
            print(f"update {number} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
