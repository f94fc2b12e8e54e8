import subprocess
import sys


def test_nothing_imports_the_compiler():
    script = """
import sys, torch
from torchbeast.core import optimizer
parameter = torch.nn.Parameter(torch.ones(2))
made = optimizer.RMSprop([parameter], lr=0.1)
parameter.grad = torch.ones(2)
made.step()
made.zero_grad()
made.load_state_dict(made.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
