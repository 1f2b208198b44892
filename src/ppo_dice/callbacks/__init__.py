"""What watches a run, and may end it: functions and objects that are called after every iteration."""

from ppo_dice.callbacks.contract import AgentInTraining, Callback, CallbackLike, Callbacks, Training
from ppo_dice.callbacks.evaluation import EvalCallback
from ppo_dice.callbacks.films import FilmCallback
from ppo_dice.callbacks.stopping import StopTrainingOnNoModelImprovement, StopTrainingOnRewardThreshold

__all__ = [
    "AgentInTraining",
    "Callback",
    "CallbackLike",
    "Callbacks",
    "EvalCallback",
    "FilmCallback",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
    "Training",
]
