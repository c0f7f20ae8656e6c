"""A graph convolutional network, full batch, with a sparse adjacency matrix."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        output = torch.sparse.mm(adj, support)
        return output + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nhid)
        self.gc3 = GraphConvolution(nhid, nclass)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, 0.5, self.training)
        x = F.relu(self.gc2(x, adj))
        x = F.dropout(x, 0.5, self.training)
        x = self.gc3(x, adj)
        return F.log_softmax(x, dim=1)


def load_data(nodes, nfeat, degree, nclass):
    rows = torch.arange(nodes).repeat_interleave(degree)
    cols = torch.randint(0, nodes, (nodes * degree,))
    values = torch.full((nodes * degree,), 1.0 / degree)
    adj = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (nodes, nodes)).coalesce()
    features = torch.rand(nodes, nfeat)
    labels = torch.randint(0, nclass, (nodes,))
    idx_train = torch.randperm(nodes)[: nodes // 2]
    return adj, features, labels, idx_train


def accuracy(output, labels):
    preds = output.argmax(1)
    return (preds == labels).float().mean()


parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=3000)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--degree", type=int, default=8)
parser.add_argument("--epochs", type=int, default=2000)
args = parser.parse_args()
torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

adj, features, labels, idx_train = load_data(args.nodes, 128, args.degree, 7)
model = GCN(features.shape[1], args.hidden, 7).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
features, adj = features.to(device), adj.to(device)
labels, idx_train = labels.to(device), idx_train.to(device)


def train(epoch):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    acc_train = accuracy(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    if epoch % 100 == 0:
        print(f"epoch {epoch} loss {loss_train.item():.4f} accuracy {acc_train.item():.4f}")


for epoch in range(args.epochs):
    train(epoch)
