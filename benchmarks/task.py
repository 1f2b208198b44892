"""The task of every contestant: PPO on Hopper as Stable-Baselines3 runs it by default."""

ENV_ID = "Hopper-v5"
N_STEPS = 2048
N_EPOCHS = 10
N_MINIBATCHES = 32
N_SEEDS = 10
